// How much memory can still be had, and the check that the segments of all ranks fit, before any rank takes memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "base/collective.h"

namespace moeway::transport {

struct FreeMemory {
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  int64_t machine_bytes = kUnlimited;  // MemAvailable.
  // Below the tightest limit of this process's memory control groups (version 1 or 2); page cache that can be dropped
  // counts as free. A container's limit is one.
  int64_t group_bytes = kUnlimited;
  uint64_t group = 0;  // Which control group has that limit: processes with the same number share it. 0: none.
};

// `root`: where /proc and /sys are; another one for tests.
FreeMemory read_free_memory(const std::string& root = "");

// Collective. OK, on all ranks, if all ask for the same `bytes` (>= 1) and the machine and every control group have
// free what their ranks need together.
Status check_segments_fit(size_t bytes, Collective& collective, Deadline deadline);

}  // namespace moeway::transport
