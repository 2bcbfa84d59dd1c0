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
  // A launch may start, up to its first access, while the one before it in the stream still runs. Not where ranks share a
  // device: a launch that only waits would hold the room that another rank's needs.
  bool overlap = false;
};

// Shared memory that a block of a dispatch launch needs.
int64_t dispatch_shared_bytes(const layout::Shape& shape);

// Enqueue a launch; a cudaError_t, 0 if it went well. All pointers in the arguments are the device's.
int dispatch(const CudaGrid& grid, const exec::DeviceControl& control, Half half, kernels::direct::DispatchArgs args,
             const peers::LoadStorePeers& peers);
// Of rows of one type each.
int combine_bf16(const CudaGrid& grid, const exec::DeviceControl& control, Half half, Element sums,
                 kernels::direct::CombineArgs args, const peers::LoadStorePeers& peers);
int combine_f16(const CudaGrid& grid, const exec::DeviceControl& control, Half half, Element sums,
                kernels::direct::CombineArgs args, const peers::LoadStorePeers& peers);
int combine_f32(const CudaGrid& grid, const exec::DeviceControl& control, Half half, Element sums,
                kernels::direct::CombineArgs args, const peers::LoadStorePeers& peers);

inline int combine(const CudaGrid& grid, const exec::DeviceControl& control, Half half, Element rows, Element sums,
                   kernels::direct::CombineArgs args, const peers::LoadStorePeers& peers) {
  if (rows == Element::kBf16) return combine_bf16(grid, control, half, sums, args, peers);
  if (rows == Element::kF16) return combine_f16(grid, control, half, sums, args, peers);
  return combine_f32(grid, control, half, sums, args, peers);
}

}  // namespace moeway::launch
