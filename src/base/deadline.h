// A point in time by which something must have happened. Monotonic clock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace moeway {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline never() { return Deadline(Clock::time_point::max()); }
  // A timeout that leaves the clock's range is no limit.
  static Deadline after(std::chrono::milliseconds timeout) {
    const Clock::time_point now = Clock::now();
    const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::time_point::max() - now);
    return timeout < most ? Deadline(now + timeout) : never();
  }

  bool passed() const { return Clock::now() >= at_; }
  // Never negative; rounded up, so that a wait of this length ends at or after the deadline.
  std::chrono::milliseconds left() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now());
    return std::max(left, std::chrono::milliseconds(0));
  }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

}  // namespace moeway
