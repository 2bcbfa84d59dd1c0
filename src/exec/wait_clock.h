// How long a rank has waited for each peer: counters in its memory, which the host may read while kernels run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/atomic.h"
#include "exec/compiler.h"

namespace moeway::exec {

struct WaitClock {
  uint64_t* until = nullptr;       // Up to when waiting has been counted; null: it is not counted.
  std::byte* waited_ns = nullptr;  // The uint64 of rank 0; rank r's is at waited_ns + r * stride.
  int64_t stride = 0;

  MOEWAY_FN bool counts() const { return until != nullptr; }
  // A team has waited for `peer` from `from` to `now`, in nanoseconds of one clock. Teams wait at the same time: what
  // another one has counted is not counted again.
  MOEWAY_FN void add(int32_t peer, uint64_t from, uint64_t now) const {
    // Relaxed, both: each word is read for itself.
    const uint64_t counted = max_relaxed<Scope::kDevice>(until, now);
    const uint64_t begin = counted > from ? counted : from;
    if (now > begin) {
      add_relaxed<Scope::kDevice>(reinterpret_cast<uint64_t*>(waited_ns + peer * stride), now - begin);
    }
  }
};

}  // namespace moeway::exec
