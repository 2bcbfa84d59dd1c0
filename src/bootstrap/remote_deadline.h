// Rank 0 alone can say who is missing. So every rank tells it how long it will wait, rank 0 gives up before the first
// of them does, and each waits a little longer than its deadline for rank 0's word.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/deadline.h"

namespace moeway::bootstrap {

// The longest wait that the clock's arithmetic surely bears. Callers may ask for more; they will not notice.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

inline uint64_t left_ms(Deadline deadline) { return static_cast<uint64_t>(deadline.left().count()); }

// `ms` comes from another rank: any value.
inline Deadline deadline_from(uint64_t ms) {
  constexpr auto kLongest = static_cast<uint64_t>(kLongestWait.count());
  return Deadline::after(std::chrono::milliseconds(std::min(ms, kLongest)));
}

inline Deadline sooner(Deadline a, Deadline b) { return a.left() <= b.left() ? a : b; }

inline Deadline with_grace(Deadline deadline) {
  constexpr std::chrono::milliseconds kGrace{500};
  return Deadline::after(std::min(deadline.left(), kLongestWait) + kGrace);
}

}  // namespace moeway::bootstrap
