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
  fetch(args);
  fetch(peers);
  fetch(control);
  const DispatchTeam<kHeld> team(shared_memory, control);
  if constexpr (kHalf == Half::kSend) kernels::direct::dispatch_send<Config>(team, args, peers);
  if constexpr (kHalf == Half::kRecv) kernels::direct::dispatch_recv<Config>(team, args, peers);
  if constexpr (kHalf == Half::kBoth) kernels::direct::dispatch<Config>(team, args, peers);
}

int64_t dispatch_shared_bytes(const layout::Shape& shape) {
  return kernels::direct::DispatchScratch::bytes<DispatchTeam<1>>(shape);
}

int dispatch(const CudaGrid& grid, const exec::DeviceControl& control, Half half, kernels::direct::DispatchArgs args,
             const peers::LoadStorePeers& peers) {
  args.complete();
  const layout::Shape& shape = args.round.shape();
  const auto shared_bytes = static_cast<size_t>(dispatch_shared_bytes(shape));
  const auto launched = [&](auto kernel) {
    return launch(grid, kernel, kDispatchThreads, shared_bytes, args, peers, control);
  };
  constexpr int kFew = 2, kMany = 4;  // Units that a thread holds.
  const auto num_chunks = [&](int held) {
    const int at_once = kDispatchThreads / 2 * held;
    return (shape.token().num_units() + at_once - 1) / at_once;
  };
  // Each half has a kernel of its own: a launch holds no more registers than its half needs.
  return with_bool(shape.rows == layout::Rows::kTokenMajor, [&](auto token_major) {
    return with_half(half, [&](auto which) {
      constexpr bool kTokenMajor = decltype(token_major)::value;
      constexpr Half kHalf = decltype(which)::value;
      using Usual = kernels::direct::DispatchConfig<kTokenMajor, true>;
      using Any = kernels::direct::DispatchConfig<kTokenMajor, false>;
      if (kernels::direct::usual(args, num_chunks(kFew))) return launched(dispatch_kernel<kHalf, Usual, kFew>);
      if (kernels::direct::usual(args, num_chunks(kMany))) return launched(dispatch_kernel<kHalf, Usual, kMany>);
      return launched(dispatch_kernel<kHalf, Any, kMany>);
    });
  });
}

}  // namespace moeway::launch
