// The direct protocol's kernels on a CUDA device, for host code that knows nothing of CUDA.
#pragma once

#include "exec/device_control.h"
#include "kernels/direct/combine_args.h"
#include "kernels/direct/dispatch_args.h"
#include "launch/choices.h"
#include "peers/load_store.h"

namespace moeway::launch {

// All blocks of a launch must be resident at the same time: a block that waits needs the blocks that it waits for.
struct CudaGrid {
  int num_blocks;
  void* stream;  // A cudaStream_t.
};

// Enqueue a launch; a cudaError_t, 0 if it went well. All pointers in the arguments are the device's.
int dispatch(const CudaGrid& grid, const exec::DeviceControl& control, Half half,
             const kernels::direct::DispatchArgs& args, const peers::LoadStorePeers& peers);
int combine(const CudaGrid& grid, const exec::DeviceControl& control, Half half, Element rows, Element sums,
            const kernels::direct::CombineArgs& args, const peers::LoadStorePeers& peers);

}  // namespace moeway::launch
