#include "cli/progress_board.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace moeway::cli {

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kMeeting:
      return "meeting";
    case Phase::kReady:
      return "ready";
    case Phase::kBarrier:
      return "barrier";
    case Phase::kDispatch:
      return "dispatch";
    case Phase::kDispatchSend:
      return "dispatch_send";
    case Phase::kDispatchRecv:
      return "dispatch_recv";
    case Phase::kExperts:
      return "experts";
    case Phase::kCombine:
      return "combine";
    case Phase::kCombineSend:
      return "combine_send";
    case Phase::kCombineRecv:
      return "combine_recv";
    case Phase::kChecking:
      return "checking";
    case Phase::kTiming:
      return "timing";
    case Phase::kDone:
      return "done";
  }
  return "unknown";
}

ProgressBoard::ProgressBoard(int num_ranks) : num_ranks_(num_ranks) {
  const size_t bytes = static_cast<size_t>(num_ranks) * sizeof(RankProgress);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ranks_ = static_cast<RankProgress*>(memory);
  for (int rank = 0; rank < num_ranks; ++rank) new (ranks_ + rank) RankProgress();
}

ProgressBoard::~ProgressBoard() { munmap(ranks_, static_cast<size_t>(num_ranks_) * sizeof(RankProgress)); }

int64_t ProgressBoard::slowest_round() const {
  int64_t slowest = ranks_[0].round();
  for (int rank = 1; rank < num_ranks_; ++rank) slowest = std::min(slowest, ranks_[rank].round());
  return slowest;
}

bool ProgressBoard::all_ready() const {
  return std::all_of(ranks_, ranks_ + num_ranks_,
                     [](const RankProgress& rank) { return rank.phase() != Phase::kMeeting; });
}

uint64_t ProgressBoard::beats() const {
  uint64_t sum = 0;
  for (int rank = 0; rank < num_ranks_; ++rank) sum += ranks_[rank].beats();
  return sum;
}

}  // namespace moeway::cli
