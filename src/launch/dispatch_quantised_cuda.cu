// Dispatch that quantises: kernels of their own, so that the others hold no instruction and no register for it.
#include "launch/dispatch_cuda.cuh"

namespace moeway::launch {

int dispatch_quantised(const CudaGrid& grid, const exec::DeviceControl& control, Half half,
                       const kernels::direct::DispatchArgs& args, const peers::LoadStorePeers& peers,
                       size_t shared_bytes) {
  const auto launched = [&](auto kernel) {
    return launch(grid, kernel, kDispatchThreads, shared_bytes, args, peers, control);
  };
  constexpr int kHeld = 2;  // Longer tokens go in chunks.
  return with_bool(kernels::direct::usual(args, dispatch_chunks<kHeld>(args.round.shape())), [&](auto usual) {
    constexpr bool kUsual = decltype(usual)::value;
    using Rows = kernels::direct::DispatchConfig<false, kUsual, true>;
    using Tokens = kernels::direct::DispatchConfig<true, kUsual, true>;
    const bool token_major = args.round.shape().rows == layout::Rows::kTokenMajor;
    if (half == Half::kSend) {
      return token_major ? launched(dispatch_kernel<Half::kSend, Tokens, kHeld>)
                         : launched(dispatch_kernel<Half::kSend, Rows, kHeld>);
    }
    return token_major ? launched(dispatch_kernel<Half::kBoth, Tokens, kHeld>)
                       : launched(dispatch_kernel<Half::kBoth, Rows, kHeld>);
  });
}

}  // namespace moeway::launch
