// A build without CUDA: what it says when it is asked for a device.
#include "cli/device/cuda_place.h"

namespace moeway::cli {
namespace {

Status missing() { return Status(MOEWAY_UNAVAILABLE, "this build of moeway has no CUDA (MOEWAY_CUDA)"); }

}  // namespace

Result<std::unique_ptr<Place>> make_cuda_place(int) { return missing(); }
Result<CudaFacts> look_at_cuda(int) { return missing(); }

}  // namespace moeway::cli
