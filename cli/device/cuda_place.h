// Ranks on CUDA devices. A build without CUDA has another implementation of this header, which says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/device/place.h"

namespace moeway::cli {

// A stream of its own on the device, and memory there. Makes the device the calling thread's current one.
Result<std::unique_ptr<Place>> make_cuda_place(int device_index);

// What a measurement has to say about the device that it was made on.
struct CudaFacts {
  std::string name;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  std::string driver_cuda, runtime_cuda;  // "13.0": the newest CUDA that the driver knows, and the one linked here.
};
Result<CudaFacts> look_at_cuda(int device_index);

}  // namespace moeway::cli
