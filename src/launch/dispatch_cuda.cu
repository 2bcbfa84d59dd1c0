// Dispatch of the direct protocol on CUDA devices: which kernel a launch takes.
#include "launch/dispatch_cuda.cuh"

namespace moeway::launch {

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
  if (shape.quantises() && half != Half::kRecv) {
    return dispatch_quantised(grid, control, half, args, peers, shared_bytes);
  }
  const auto launched = [&](auto kernel) {
    return launch(grid, kernel, kDispatchThreads, shared_bytes, args, peers, control);
  };
  constexpr int kFew = 2, kMany = 4;  // Units that a thread holds.
  // Each half has a kernel of its own: a launch holds no more registers than its half needs.
  return with_bool(shape.rows == layout::Rows::kTokenMajor, [&](auto token_major) {
    return with_half(half, [&](auto which) {
      constexpr bool kTokenMajor = decltype(token_major)::value;
      constexpr Half kHalf = decltype(which)::value;
      using Usual = kernels::direct::DispatchConfig<kTokenMajor, true>;
      using Any = kernels::direct::DispatchConfig<kTokenMajor, false>;
      if (kernels::direct::usual(args, dispatch_chunks<kFew>(shape)))
        return launched(dispatch_kernel<kHalf, Usual, kFew>);
      if (kernels::direct::usual(args, dispatch_chunks<kMany>(shape)))
        return launched(dispatch_kernel<kHalf, Usual, kMany>);
      return launched(dispatch_kernel<kHalf, Any, kMany>);
    });
  });
}

}  // namespace moeway::launch
