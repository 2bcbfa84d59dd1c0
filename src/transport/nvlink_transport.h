// Memory of CUDA devices of one machine that reach each other over NVLink (or PCIe, where the driver allows it): a
// process or a thread per device, or several ranks on one device.
#pragma once

#include <memory>

#include "transport/heap.h"

namespace moeway::transport {

// Collective. `device_index` is this rank's device as this process numbers its devices; ranks may see different ones.
// Fails on all ranks with MOEWAY_UNAVAILABLE where there is no driver or a device cannot share memory, and, naming
// every pair of ranks that cannot, where devices cannot reach each other: this is tried, with a little memory, before
// anything else is taken.
Result<std::unique_ptr<Transport>> make_nvlink_transport(int device_index, Collective& collective, Deadline deadline);

}  // namespace moeway::transport
