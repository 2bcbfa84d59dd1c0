// Where every rank of a job is, in memory that parent and ranks share: still readable when a rank has died.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace moeway::cli {

enum class Phase : int32_t {
  kMeeting,  // Bootstrap, communicator, AllToAll.
  kReady,    // All ranks have met.
  kBarrier,
  kDispatch,  // Both halves in one call.
  kDispatchSend,
  kDispatchRecv,
  kExperts,
  kCombine,  // Both halves in one call.
  kCombineSend,
  kCombineRecv,
  kChecking,
  kTiming,  // Calls of a benchmark, one after another.
  kDone
};

const char* phase_name(Phase phase);

// Written by one rank, read by the parent. All accesses are relaxed: each value stands for itself, nothing else is read
// on the strength of it.
class RankProgress {
 public:
  void enter(Phase phase, int64_t round) {
    round_.store(round, std::memory_order_relaxed);
    phase_.store(phase, std::memory_order_relaxed);
    alive();
  }
  void alive() { beats_.fetch_add(1, std::memory_order_relaxed); }

  Phase phase() const { return phase_.load(std::memory_order_relaxed); }
  int64_t round() const { return round_.load(std::memory_order_relaxed); }
  uint64_t beats() const { return beats_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> round_{0};
  std::atomic<Phase> phase_{Phase::kMeeting};
  std::atomic<uint64_t> beats_{0};
};

// Made before the ranks are started. Throws std::bad_alloc.
class ProgressBoard {
 public:
  explicit ProgressBoard(int num_ranks);
  ~ProgressBoard();
  ProgressBoard(const ProgressBoard&) = delete;
  ProgressBoard& operator=(const ProgressBoard&) = delete;

  int num_ranks() const { return num_ranks_; }
  RankProgress& rank(int rank) const { return ranks_[rank]; }
  // The round that the slowest rank is in.
  int64_t slowest_round() const;
  bool all_ready() const;
  // Grows as long as any rank gets on.
  uint64_t beats() const;

 private:
  int num_ranks_;
  RankProgress* ranks_;
};

}  // namespace moeway::cli
