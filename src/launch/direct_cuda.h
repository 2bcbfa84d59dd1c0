// The direct protocol's kernels on a CUDA device. For files that nvcc compiles.
#pragma once

#include <cuda_runtime.h>

#include "exec/cuda/control.h"
#include "kernels/direct/combine_args.h"
#include "kernels/direct/dispatch_args.h"
#include "launch/half.h"
#include "peers/load_store.h"

namespace moeway::launch {

// All blocks of a launch must be resident at the same time: a block that waits needs the blocks that it waits for.
struct CudaGrid {
  int num_blocks;
  cudaStream_t stream;
};

// Enqueue a launch; what cudaGetLastError() says of it. All pointers in the arguments are the device's.
cudaError_t dispatch(const CudaGrid& grid, const exec::CudaControl& control, Half half,
                     const kernels::direct::DispatchArgs& args, const peers::LoadStorePeers& peers);
// Rows and sums are bf16.
cudaError_t combine_bf16(const CudaGrid& grid, const exec::CudaControl& control, Half half,
                         const kernels::direct::CombineArgs& args, const peers::LoadStorePeers& peers);

}  // namespace moeway::launch
