// Direct peers: ranks whose heaps this rank's loads and stores reach (host shared memory, NVLink).
//
// The peers contract of the direct protocol: heap(rank) is where rank's segment starts, seen from here. Data is written
// there with plain stores; a signal is a release store of system scope after them, and whoever acquires it sees them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/compiler.h"

namespace moeway::peers {

struct LoadStorePeers {
  std::byte* const* heaps;  // [num_ranks], readable where the kernel runs.

  MOEWAY_FN std::byte* heap(int32_t rank) const { return heaps[rank]; }
};

}  // namespace moeway::peers
