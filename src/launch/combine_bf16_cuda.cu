// Combine of bf16 rows.
#include "launch/combine_cuda.cuh"

namespace moeway::launch {

int combine_bf16(const CudaGrid& grid, const exec::DeviceControl& control, Half half, Element sums,
                 kernels::direct::CombineArgs args, const peers::LoadStorePeers& peers) {
  return combine_rows<exec::Bf16>(grid, control, half, sums, args, peers);
}

}  // namespace moeway::launch
