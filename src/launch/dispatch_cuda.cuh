// Dispatch of the direct protocol on CUDA devices: where its kernels meet the CUDA form of the execution contract, and
// nothing else.
#pragma once

#include "kernels/direct/dispatch.h"
#include "launch/cuda_launch.cuh"

namespace moeway::launch {

// A block is two halves of 256 threads; a half moves a token in one or two accesses a thread. Measured:
// docs/performance-log.md.
constexpr int kDispatchThreads = 512;
template <int kHeld>
using DispatchTeam = exec::CudaTeam<kDispatchThreads, kHeld>;

// kHeld: units of 16 bytes that a thread holds of a token.
template <Half kHalf, class Config, int kHeld>
__global__ void __launch_bounds__(kDispatchThreads, 1)
    dispatch_kernel(const __grid_constant__ kernels::direct::DispatchArgs args,
                    const __grid_constant__ peers::LoadStorePeers peers,
                    const __grid_constant__ exec::DeviceControl control) {
  const DispatchTeam<kHeld> team(shared_memory, control);
  if constexpr (kHalf == Half::kSend) kernels::direct::dispatch_send<Config>(team, args, peers);
  if constexpr (kHalf == Half::kRecv) kernels::direct::dispatch_recv<Config>(team, args, peers);
  if constexpr (kHalf == Half::kBoth) kernels::direct::dispatch<Config>(team, args, peers);
}

// Chunks that a half of such a block makes of a token.
template <int kHeld>
int dispatch_chunks(const layout::Shape& shape) {
  constexpr int kAtOnce = kDispatchThreads / 2 * kHeld;
  return (shape.token().num_units() + kAtOnce - 1) / kAtOnce;
}

// The launch of what sends where tokens are quantised on their way: kSend or kBoth.
int dispatch_quantised(const CudaGrid& grid, const exec::DeviceControl& control, Half half,
                       const kernels::direct::DispatchArgs& args, const peers::LoadStorePeers& peers,
                       size_t shared_bytes);

}  // namespace moeway::launch
