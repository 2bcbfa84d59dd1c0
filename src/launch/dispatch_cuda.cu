// Dispatch of the direct protocol on CUDA devices: where its kernels meet the CUDA form of the execution contract, and
// nothing else.
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
  if constexpr (kHalf == Half::kSend) kernels::direct::dispatch_send(team, args, peers);
  if constexpr (kHalf == Half::kRecv) kernels::direct::dispatch_recv<Config>(team, args, peers);
  if constexpr (kHalf == Half::kBoth) kernels::direct::dispatch<Config>(team, args, peers);
}

int64_t dispatch_shared_bytes(const layout::Shape& shape) {
  return kernels::direct::DispatchScratch::bytes<DispatchTeam<1>>(shape);
}

int dispatch(const CudaGrid& grid, const exec::DeviceControl& control, Half half, kernels::direct::DispatchArgs args,
             const peers::LoadStorePeers& peers) {
  if (is_split(half, args.round.shape().replicated())) {
    const int error = dispatch(grid, control, Half::kSend, args, peers);
    return error != 0 ? error : dispatch(grid, control, Half::kRecv, args, peers);
  }
  args.complete();
  const layout::Shape& shape = args.round.shape();
  const auto shared_bytes = static_cast<size_t>(dispatch_shared_bytes(shape));
  const auto launched = [&](auto kernel) {
    return launch(grid, kernel, kDispatchThreads, shared_bytes, args, peers, control);
  };
  // Each half has a kernel of its own: a launch holds no more registers than its half needs.
  return with_bool(shape.rows == layout::Rows::kTokenMajor, [&](auto token_major) {
    using Config = kernels::direct::DispatchConfig<decltype(token_major)::value>;
    return with_half(half, [&](auto which) {
      constexpr Half kHalf = decltype(which)::value;
      const bool two = shape.token().num_units() <= kDispatchThreads / 2 * 2;
      return two ? launched(dispatch_kernel<kHalf, Config, 2>) : launched(dispatch_kernel<kHalf, Config, 4>);
    });
  });
}

}  // namespace moeway::launch
