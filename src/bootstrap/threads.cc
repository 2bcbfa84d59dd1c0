// Ranks as threads of one process. The last rank to arrive in an all-gather moves everybody's bytes, while the others
// wait: their arguments are valid for just that long, and nothing has to be allocated.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "base/rank_list.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/counted_collective.h"

namespace moeway::bootstrap {

class ThreadMeeting {
 public:
  explicit ThreadMeeting(int num_ranks) : seats_(static_cast<size_t>(num_ranks)) {}
  int size() const { return static_cast<int>(seats_.size()); }

  // False if the seat is taken.
  bool take_seat(int rank) {
    const std::lock_guard lock(mutex_);
    return !std::exchange(seat(rank).taken, true);
  }

  // The rank will make no further call. Whoever waits for it need not wait longer.
  void leave(int rank, const Status& why) {
    const std::lock_guard lock(mutex_);
    seat(rank).left = true;
    if (!why.ok()) {
      fail(error(why.code(), "rank {}: {}", rank, why.message()));
    } else if (num_arrived_ > 0) {
      fail(error(MOEWAY_PEER_LOST, "rank {} has closed its bootstrap, the others are in an all-gather", rank));
    }
  }

  Status gather(int rank, const void* in, size_t bytes, void* out, Deadline deadline) {
    std::unique_lock lock(mutex_);
    if (!failure_.ok()) return failure_;
    const uint64_t round = round_;
    Seat& mine = seat(rank);
    mine.in = in;
    mine.bytes = bytes;
    mine.out = out;
    mine.arrived = true;
    ++num_arrived_;
    if (const std::vector<int> gone = ranks_where(&Seat::left); !gone.empty()) {
      fail(error(MOEWAY_PEER_LOST, "{} of {} closed the bootstrap before this all-gather", rank_list(gone), size()));
    } else if (num_arrived_ == size()) {
      complete();
    }
    while (failure_.ok() && round_ == round) {
      // Slices of an hour: the clock's arithmetic would overflow on the longest deadlines.
      changed_.wait_for(lock, std::min<std::chrono::milliseconds>(deadline.left(), std::chrono::hours(1)));
      if (deadline.passed() && failure_.ok() && round_ == round) fail(missing());
    }
    return round_ != round ? Status() : failure_;
  }

 private:
  struct Seat {
    bool taken = false;
    bool left = false;
    bool arrived = false;
    const void* in = nullptr;
    size_t bytes = 0;
    void* out = nullptr;
  };

  Seat& seat(int rank) { return seats_[static_cast<size_t>(rank)]; }

  std::vector<int> ranks_where(bool Seat::*flag, bool value = true) const {
    std::vector<int> ranks;
    for (int r = 0; r < size(); ++r) {
      if (seats_[static_cast<size_t>(r)].*flag == value) ranks.push_back(r);
    }
    return ranks;
  }

  Status missing() const {
    return error(MOEWAY_DEADLINE_EXCEEDED, "{} of {} did not come to the all-gather in time",
                 rank_list(ranks_where(&Seat::arrived, false)), size());
  }

  void complete() {
    for (int r = 1; r < size(); ++r) {
      if (seat(r).bytes != seat(0).bytes) {
        return fail(error(MOEWAY_MISMATCH, "ranks are out of step: rank {} gathers {} bytes, rank 0 {}", r,
                          seat(r).bytes, seat(0).bytes));
      }
    }
    const size_t bytes = seat(0).bytes;
    for (Seat& to : seats_) {
      // memmove: a rank's input may be its own place in its output.
      for (size_t r = 0; bytes > 0 && r < seats_.size(); ++r)
        std::memmove(static_cast<std::byte*>(to.out) + r * bytes, seats_[r].in, bytes);
    }
    for (Seat& at : seats_) at.arrived = false;
    num_arrived_ = 0;
    ++round_;
    changed_.notify_all();
  }

  void fail(Status why) {
    if (failure_.ok()) failure_ = std::move(why);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Seat> seats_;
  int num_arrived_ = 0;
  uint64_t round_ = 0;
  Status failure_;
};

namespace {

class ThreadCollective final : public CountedCollective {
 public:
  ThreadCollective(std::shared_ptr<ThreadMeeting> meeting, int rank)
      : CountedCollective(rank, meeting->size()), meeting_(std::move(meeting)) {}
  ~ThreadCollective() override {
    // A fork has a copy of the meeting, whose lock another thread may have held.
    if (is_owner()) meeting_->leave(rank(), Status());
  }

 private:
  Status gather(const void* in, size_t bytes, void* out, Deadline deadline) override {
    return meeting_->gather(rank(), in, bytes, out, deadline);
  }
  void leave(const Status& why) override { meeting_->leave(rank(), why); }

  const std::shared_ptr<ThreadMeeting> meeting_;
};

}  // namespace

Result<std::shared_ptr<ThreadMeeting>> make_thread_meeting(int num_ranks) {
  if (Status status = check_place(0, num_ranks); !status.ok()) return status;
  return std::make_shared<ThreadMeeting>(num_ranks);
}

Result<std::unique_ptr<Collective>> meet_threads(std::shared_ptr<ThreadMeeting> meeting, int rank) {
  if (Status status = check_place(rank, meeting->size()); !status.ok()) return status;
  if (!meeting->take_seat(rank)) {
    return invalid_argument("rank is {}, expected one that no other thread of the group has taken", rank);
  }
  return std::unique_ptr<Collective>(std::make_unique<ThreadCollective>(std::move(meeting), rank));
}

}  // namespace moeway::bootstrap
