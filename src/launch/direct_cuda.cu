// The direct protocol's kernels for CUDA devices: where a kernel meets the CUDA form of the execution contract, and
// nothing else.
#include <type_traits>

#include "exec/cuda/team.h"
#include "kernels/direct/combine_recv.h"
#include "kernels/direct/dispatch_recv.h"
#include "launch/direct_cuda.h"

namespace moeway::launch {

// A token's row is a few kilobytes: 256 threads move it in one or two accesses each.
constexpr int kTeamThreads = 256;
constexpr int kTeamsPerBlock = 2;
constexpr int kBlockThreads = kTeamThreads * kTeamsPerBlock;
using Team = exec::CudaTeam<kTeamThreads>;

extern __shared__ __align__(16) std::byte shared_memory[];

template <Half kHalf>
__global__ void __launch_bounds__(kBlockThreads)
    dispatch_kernel(const __grid_constant__ kernels::direct::DispatchArgs args,
                    const __grid_constant__ peers::LoadStorePeers peers,
                    const __grid_constant__ exec::DeviceControl control, size_t scratch_bytes) {
  const Team team(shared_memory, scratch_bytes, control);
  if constexpr (kHalf == Half::kSend) kernels::direct::dispatch_send(team, args, peers);
  if constexpr (kHalf == Half::kRecv) kernels::direct::dispatch_recv(team, args, peers);
  if constexpr (kHalf == Half::kBoth) kernels::direct::dispatch(team, args, peers);
}

template <Half kHalf, class Config>
__global__ void __launch_bounds__(kBlockThreads)
    combine_kernel(const __grid_constant__ kernels::direct::CombineArgs args,
                   const __grid_constant__ peers::LoadStorePeers peers,
                   const __grid_constant__ exec::DeviceControl control) {
  const Team team(shared_memory, 0, control);
  if constexpr (kHalf == Half::kSend) kernels::direct::combine_send<Config>(team, args, peers);
  if constexpr (kHalf == Half::kRecv) kernels::direct::combine_recv<Config>(team, args, peers);
  if constexpr (kHalf == Half::kBoth) kernels::direct::combine<Config>(team, args, peers);
}

namespace {

// Each half has a kernel of its own: a launch holds no more registers than its half needs.

template <class Config>
void combine_typed(const CudaGrid& grid, const exec::DeviceControl& control, Half half,
                   const kernels::direct::CombineArgs& args, const peers::LoadStorePeers& peers) {
  const size_t shared_bytes = Team::shared_bytes(0) * static_cast<size_t>(kTeamsPerBlock);
  with_half(half, [&](auto which) {
    combine_kernel<decltype(which)::value, Config>
        <<<grid.num_blocks, kBlockThreads, shared_bytes, static_cast<cudaStream_t>(grid.stream)>>>(args, peers,
                                                                                                   control);
  });
}

}  // namespace

int dispatch(const CudaGrid& grid, const exec::DeviceControl& control, Half half,
             const kernels::direct::DispatchArgs& args, const peers::LoadStorePeers& peers) {
  const auto scratch_bytes = static_cast<size_t>(kernels::direct::dispatch_scratch_bytes(args.round.shape().experts));
  const size_t shared_bytes = Team::shared_bytes(scratch_bytes) * static_cast<size_t>(kTeamsPerBlock);
  with_half(half, [&](auto which) {
    // More than a block gets without being asked: many experts.
    constexpr size_t kGiven = 48 * 1024;
    if (shared_bytes > kGiven) {
      cudaFuncSetAttribute(dispatch_kernel<decltype(which)::value>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(shared_bytes));
    }
    dispatch_kernel<decltype(which)::value>
        <<<grid.num_blocks, kBlockThreads, shared_bytes, static_cast<cudaStream_t>(grid.stream)>>>(args, peers, control,
                                                                                                   scratch_bytes);
  });
  return cudaGetLastError();
}

int combine(const CudaGrid& grid, const exec::DeviceControl& control, Half half, Element rows, Element sums,
            const kernels::direct::CombineArgs& args, const peers::LoadStorePeers& peers) {
  with_type(rows, [&](auto row) {
    with_type(sums, [&](auto sum) {
      combine_typed<kernels::direct::CombineConfig<decltype(row), decltype(sum)>>(grid, control, half, args, peers);
    });
  });
  return cudaGetLastError();
}

}  // namespace moeway::launch
