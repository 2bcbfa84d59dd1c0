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

// Asks for all of a kernel's argument, on its way while the launch before this one ends: a launch's arguments are new to the
// multiprocessor's caches, and code that comes to them one by one waits for each line.
template <class T>
__device__ void fetch(const T& argument) {
  constexpr int kLineBytes = 64;
  uint32_t sum = 0;
#pragma unroll
  for (int at = 0; at < static_cast<int>(sizeof(T)); at += kLineBytes) {
    uint32_t word;
    asm volatile("{ .reg .u64 p; cvta.to.param.u64 p, %1; ld.param.u32 %0, [p]; }"
                 : "=r"(word)
                 : "l"(reinterpret_cast<const char*>(&argument) + at));
    sum |= word;
  }
  // A use that does nothing, so that the loads stay.
  asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 0x5bd1e995; @p nanosleep.u32 0; }" ::"r"(sum));
}

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
