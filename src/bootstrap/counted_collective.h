// What every Collective of this folder has in common: its place, the count of calls, and the first failure, which
// stays.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/checked.h"
#include "base/collective.h"
#include "base/format.h"
#include "base/owner_process.h"

namespace moeway::bootstrap {

// OK if `rank` of `num_ranks` can exist.
inline Status check_place(int rank, int num_ranks) {
  if (num_ranks < 1) return invalid_argument("num_ranks is {}, expected 1 or more", num_ranks);
  if (rank < 0 || rank >= num_ranks) {
    return invalid_argument("rank is {}, expected 0 to {} (num_ranks is {})", rank, num_ranks - 1, num_ranks);
  }
  return {};
}

inline Status check_timeout(std::chrono::milliseconds timeout) {
  if (timeout.count() < 1) return invalid_argument("timeout is {} ms, expected 1 or more", timeout.count());
  return {};
}

class CountedCollective : public Collective {
 public:
  CountedCollective(int rank, int num_ranks) : rank_(rank), num_ranks_(num_ranks) {}
  int rank() const final { return rank_; }
  int size() const final { return num_ranks_; }

  Status all_gather(const void* in, size_t bytes, void* out, Deadline deadline) final {
    if (!failure_.ok()) return failure_;
    if (!owner_.is_this()) return error(MOEWAY_WRONG_STATE, "this process is a fork of rank {}'s, and no rank", rank_);
    if (!(CheckedSize(static_cast<int64_t>(bytes)) * num_ranks_).ok()) {
      failure_ = invalid_argument("all-gather of {} bytes from {} ranks: the sum leaves 64 bits", bytes, num_ranks_);
      leave(failure_);
    } else {
      failure_ = gather(in, bytes, out, deadline);
    }
    ++call_;
    return failure_;
  }

  void abandon(const Status& why) final {
    if (!failure_.ok() || !owner_.is_this()) return;
    failure_ = why;
    give_up(why);
  }

 protected:
  // Whether this object is the rank's own: a fork's copy must leave the connections as they are.
  bool is_owner() const { return owner_.is_this(); }
  // How many calls came before this one. Call 0 of ranks that meet over sockets is the meeting itself.
  uint64_t call() const { return call_; }

 private:
  // As all_gather; size() * bytes fits. Has told the others if it fails.
  virtual Status gather(const void* in, size_t bytes, void* out, Deadline deadline) = 0;
  // Tells the others that this rank has failed on its own.
  virtual void leave(const Status& why) = 0;
  // The same, so that they hear which rank it is.
  virtual void give_up(const Status& why) { leave(why); }

  const int rank_;
  const int num_ranks_;
  const OwnerProcess owner_;
  uint64_t call_ = 0;
  Status failure_;
};

}  // namespace moeway::bootstrap
