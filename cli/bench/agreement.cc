#include "cli/bench/agreement.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

namespace moeway::cli {

// Written by its rank between two barriers, read by all between the next two; barriers order both.
struct Agreement::Slot {
  moeway_status code = MOEWAY_OK;
  char message[508] = "";
  std::array<std::byte, kSharedBytes> shared{};  // Rank 0's.
};

Agreement::Agreement(int num_ranks) : num_ranks_(num_ranks) {
  void* memory = mmap(nullptr, static_cast<size_t>(num_ranks) * sizeof(Slot), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  slots_ = static_cast<Slot*>(memory);
  for (int rank = 0; rank < num_ranks; ++rank) new (slots_ + rank) Slot();
}

Agreement::~Agreement() { munmap(slots_, static_cast<size_t>(num_ranks_) * sizeof(Slot)); }

std::array<std::byte, Agreement::kSharedBytes>& Agreement::shared() const { return slots_[0].shared; }

Status Agreement::agree(Communicator& communicator, const Status& mine) const {
  Slot& slot = slots_[communicator.rank()];
  slot.code = mine.code();
  const size_t length = std::min(mine.message().size(), sizeof(slot.message) - 1);
  std::memcpy(slot.message, mine.message().data(), length);
  slot.message[length] = '\0';
  if (Status met = communicator.barrier(); !met.ok()) return mine.ok() ? met : mine;
  Status all = mine;
  for (int rank = 0; rank < num_ranks_ && all.ok(); ++rank)
    if (slots_[rank].code != MOEWAY_OK)
      all = Status(slots_[rank].code, fmt::format("rank {}: {}", rank, slots_[rank].message));
  if (Status left = communicator.barrier(); !left.ok() && all.ok()) return left;
  return all;
}

}  // namespace moeway::cli
