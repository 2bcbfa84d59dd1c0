// How the direct protocol's kernels are launched on CUDA devices.
#pragma once

#include <cstddef>

#include "exec/cuda/team.h"
#include "launch/direct_cuda.h"

namespace moeway::launch {

extern __shared__ __align__(16) std::byte shared_memory[];

// More than half of a multiprocessor's shared memory: blocks that start before the launch before them has ended would
// else pile up where there is room first.
inline constexpr size_t kWholeMultiprocessor = size_t{116} * 1024;

template <class... Args>
int launch(const CudaGrid& grid, void (*kernel)(Args...), int threads, size_t shared_bytes, const Args&... args) {
  // What is allowed does not depend on this launch: threads of other ranks may allow and launch the same kernel meanwhile.
  const size_t allowed = shared_bytes > kWholeMultiprocessor ? shared_bytes : kWholeMultiprocessor;
  if (const cudaError_t error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(allowed));
      error != cudaSuccess) {
    return error;
  }
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.num_blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = grid.overlap ? allowed : shared_bytes;
  config.stream = static_cast<cudaStream_t>(grid.stream);
  config.attrs = &overlap;
  config.numAttrs = grid.overlap ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace moeway::launch
