// Dispatch that quantises: kernels of their own, so that the others hold no instruction and no register for it.
#include "launch/dispatch_cuda.cuh"

namespace moeway::launch {

int dispatch_quantised(const CudaGrid& grid, const exec::DeviceControl& control, Half half,
                       const kernels::direct::DispatchArgs& args, const peers::LoadStorePeers& peers,
                       size_t shared_bytes) {
  const auto launched = [&](auto kernel) {
    return launch(grid, kernel, kDispatchThreads, shared_bytes, args, peers, control);
  };
  // Longer tokens go in chunks.
  constexpr int kHeld = 2;
  using Rows = kernels::direct::DispatchConfig<false, true>;
  using Tokens = kernels::direct::DispatchConfig<true, true>;
  if (half == Half::kSend) return launched(dispatch_kernel<Half::kSend, Rows, kHeld>);  // Knows nothing of rows.
  return args.round.shape().rows == layout::Rows::kTokenMajor ? launched(dispatch_kernel<Half::kBoth, Tokens, kHeld>)
                                                              : launched(dispatch_kernel<Half::kBoth, Rows, kHeld>);
}

}  // namespace moeway::launch
