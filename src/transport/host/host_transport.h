// Host memory: ranks as threads of one process, or as processes of one machine.
#pragma once

#include <memory>

#include "transport/heap.h"

namespace moeway::transport {

// Collective. Chooses by where the ranks are: all in this process ("host threads": ordinary memory, so that
// ThreadSanitizer sees every access), or all on this machine ("host processes": memfd segments, their descriptors
// passed over a socket in a private directory). Ranks on several machines are refused on all ranks with
// MOEWAY_UNAVAILABLE, naming who is where.
Result<std::unique_ptr<Transport>> make_host_transport(Collective& collective, Deadline deadline);

}  // namespace moeway::transport
