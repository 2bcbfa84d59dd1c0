#include "launch/device_code.h"

#include <cuda_runtime.h>

#include <string>

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
  if (error == cudaSuccess) return {};
  cudaGetLastError();  // It is told here; the caller's next check shall not find it again.
  int device = 0;
  cudaGetDevice(&device);
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) cudaGetLastError();
  const std::string major = std::to_string(properties.major), minor = std::to_string(properties.minor);
  return Status(MOEWAY_UNAVAILABLE,
                "CUDA device " + std::to_string(device) + " (" + properties.name + ") has compute capability " + major +
                    "." + minor + ", this build of moeway has GPU code for " + built_for() + " (" +
                    cudaGetErrorString(error) + "): build it with -DMOEWAY_CUDA_ARCHITECTURES=" + major + minor);
}

bool overlaps_launches() { return attribute(cudaDevAttrComputeCapabilityMajor) >= 9; }

}  // namespace moeway::launch
