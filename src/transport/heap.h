// Symmetric memory: every rank has a segment of the same size, and can reach those of all ranks that are direct peers.
#pragma once

#include <moeway/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/collective.h"
#include "base/deadline.h"

namespace moeway::transport {

// One allocation, seen from one rank. Freeing it (destroying the object) needs no peer and does not disturb peers that
// still use theirs: a segment's memory lives until the last rank that reaches it has let go.
class SymmetricHeap {
 public:
  virtual ~SymmetricHeap() = default;
  // Bytes of each rank's segment, as asked for.
  virtual size_t bytes() const = 0;
  // Where rank `rank`'s segment starts in this process; at least 128-byte aligned, zero-filled when allocated.
  virtual std::byte* base(int rank) const = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // As moeway_communicator_transport shows it. Static memory.
  virtual const char* name() const = 0;
  // Collective: a segment of `bytes` (>= 1, equal on all ranks) on every rank, its memory reserved, so that no later
  // write can fail. Fails on all ranks if it fails on one, naming needed and free bytes; then nothing is left behind.
  virtual Result<std::unique_ptr<SymmetricHeap>> allocate(size_t bytes, Collective& collective, Deadline deadline) = 0;
  // How many ranks, this one included, share the processor that this rank's kernels run on, as far as that limits what
  // may be resident there at the same time.
  virtual int num_sharers() const { return 1; }
  // Whether the process of `rank` is known to have ended. Cheap enough to ask every few milliseconds; thread-safe.
  virtual bool peer_lost(int rank) const = 0;
};

}  // namespace moeway::transport
