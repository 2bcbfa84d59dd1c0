// Ranks as threads of one process: segments are ordinary memory, so that ThreadSanitizer and AddressSanitizer see every
// access.
#pragma once

#include <memory>

#include "transport/heap.h"

namespace moeway::transport {

std::unique_ptr<Transport> make_thread_transport();

}  // namespace moeway::transport
