// Whether this build has kernels for a device, for host code that knows nothing of CUDA.
#pragma once

#include <moeway/status.h>

namespace moeway::launch {

// OK where the calling thread's device can run this build's GPU code: it was built for the device's compute capability,
// or for an earlier one of the same major version, or holds an intermediate form that the driver can compile. Else
// MOEWAY_UNAVAILABLE with the device's name, its compute capability, and those that the build is for; also where a block
// cannot have the shared memory that every launch may take. No kernel runs.
Status device_code_status();

// Whether a launch on the calling thread's device may start before the one before it has ended.
bool overlaps_launches();

}  // namespace moeway::launch
