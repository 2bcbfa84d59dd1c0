#include "launch/device_code.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "launch/cuda_launch.cuh"

namespace moeway::launch {
namespace {

// Compiled like every kernel of the build, and as its stand-in: what can be said of it holds for them all.
__global__ void stand_in() {}

// "8.0, 9.0": what nvcc was asked for, lowest first.
std::string built_for() {
  std::string text;
  for (const int number : {__CUDA_ARCH_LIST__}) {
    if (!text.empty()) text += ", ";
    text += std::to_string(number / 100) + "." + std::to_string(number / 10 % 10);
  }
  return text;
}

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, which, device);
  return value;
}

}  // namespace

Status device_code_status() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, stand_in);
  const int shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (error == cudaSuccess && static_cast<size_t>(shared_bytes) >= kWholeMultiprocessor) return {};
  cudaGetLastError();  // It is told here; the caller's next check shall not find it again.
  int device = 0;
  cudaGetDevice(&device);
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) cudaGetLastError();
  const std::string number = std::to_string(properties.major) + "." + std::to_string(properties.minor);
  const std::string which =
      "CUDA device " + std::to_string(device) + " (" + properties.name + ", compute capability " + number + ")";
  if (error == cudaSuccess) {
    return Status(MOEWAY_UNAVAILABLE, which + " has " + std::to_string(shared_bytes) +
                                          " bytes of shared memory for a block, expected at least " +
                                          std::to_string(kWholeMultiprocessor));
  }
  return Status(MOEWAY_UNAVAILABLE, which + " cannot run the GPU code of this build of moeway, which is for " +
                                        built_for() + " (" + cudaGetErrorString(error) +
                                        "): build it with MOEWAY_CUDA_ARCHITECTURES=" +
                                        std::to_string(10 * properties.major + properties.minor));
}

bool overlaps_launches() { return attribute(cudaDevAttrComputeCapabilityMajor) >= 9; }

}  // namespace moeway::launch
