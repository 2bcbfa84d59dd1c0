// Ranks as processes of one machine: segments are memory without a name, whose descriptors the ranks pass each other.
#pragma once

#include <moeway/status.h>

#include <memory>
#include <vector>

#include "transport/heap.h"
#include "transport/host/whereabouts.h"

namespace moeway::transport {

// Collective.
Result<std::unique_ptr<Transport>> make_process_transport(const std::vector<Whereabouts>& ranks, Collective& collective,
                                                          Deadline deadline);

}  // namespace moeway::transport
