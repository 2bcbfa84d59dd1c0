// Direct peers: ranks whose heaps this rank's loads and stores reach (host shared memory, NVLink).
//
// The peers contract of the direct protocol: heap(rank) is where rank's segment starts, seen from here. Data is written
// there with plain stores; a signal is a release store of system scope after them, and whoever acquires it sees them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/compiler.h"

namespace moeway::peers {

class LoadStorePeers {
 public:
  // `heaps`: of num_ranks ranks, as the host sees them; `far`: the same, readable where the kernel runs.
  LoadStorePeers(std::byte* const* heaps, int32_t num_ranks, std::byte* const* far) : far_(far) {
    for (int32_t rank = 0; rank < num_ranks && rank < kNear; ++rank) near_[rank] = heaps[rank];
  }

  MOEWAY_FN std::byte* heap(int32_t rank) const { return rank < kNear ? near_[rank] : far_[rank]; }

 private:
  // The heaps of so many ranks travel with the arguments of a launch: a GPU has those at hand.
  static constexpr int32_t kNear = 16;
  std::byte* near_[kNear] = {};
  std::byte* const* far_;
};

}  // namespace moeway::peers
