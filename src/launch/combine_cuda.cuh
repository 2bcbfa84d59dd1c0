// Combine of the direct protocol on CUDA devices: where its kernels meet the CUDA form of the execution contract, and
// nothing else. One file per type of rows includes this: compilers work on them side by side.
#pragma once

#include "kernels/direct/combine_recv.h"
#include "launch/cuda_launch.cuh"

namespace moeway::launch {

// A block is two halves of 7 warps: a row of 7168 elements has 7 slices. Measured: docs/performance-log.md.
constexpr int kCombineThreads = 448;
using CombineTeam = exec::CudaTeam<kCombineThreads, 1>;
template <class Row>
using CombineQueue = exec::CudaTeam<32, 1>::Queue<Row>;

template <Half kHalf, class Config>
__global__ void __launch_bounds__(kCombineThreads, 1)
    combine_kernel(const __grid_constant__ kernels::direct::CombineArgs args,
                   const __grid_constant__ peers::LoadStorePeers peers,
                   const __grid_constant__ exec::DeviceControl control) {
  const CombineTeam team(shared_memory, control);
  if constexpr (kHalf == Half::kSend) kernels::direct::combine_send<Config>(team, args, peers);
  if constexpr (kHalf == Half::kRecv) kernels::direct::combine_recv<Config>(team, args, peers);
  if constexpr (kHalf == Half::kBoth) kernels::direct::combine<Config>(team, args, peers);
}

// Each half has a kernel of its own: a launch holds no more registers than its half needs.
template <class Row>
int combine_rows(const CudaGrid& grid, const exec::DeviceControl& control, Half half, Element sums,
                 kernels::direct::CombineArgs args, const peers::LoadStorePeers& peers) {
  if (is_split(half, args.round.shape().replicated())) {
    const int error = combine_rows<Row>(grid, control, Half::kSend, sums, args, peers);
    return error != 0 ? error : combine_rows<Row>(grid, control, Half::kRecv, sums, args, peers);
  }
  args.complete(sizeof(Row), exec::CudaTeam<32, 1>::kSliceElements);
  return with_type(sums, [&](auto sum) {
    return with_bool(args.round.shape().results == layout::Results::kReduced, [&](auto reduced) {
      return with_usual<Row, decltype(sum)>(kernels::direct::usual(args), [&](auto usual) {
        using Config =
            kernels::direct::CombineConfig<Row, decltype(sum), decltype(reduced)::value, decltype(usual)::value>;
        return with_half(half, [&](auto which) {
          return launch(grid, combine_kernel<decltype(which)::value, Config>, kCombineThreads,
                        kCombineThreads / 32 * CombineQueue<Row>::kWarpBytes, args, peers, control);
        });
      });
    });
  });
}

}  // namespace moeway::launch
