#include "kernels/direct/dispatch_recv.h"
#include "launch/direct_host.h"

namespace moeway::launch {

void dispatch(exec::HostGrid& grid, exec::LaunchControl& control, Half half, const kernels::direct::DispatchArgs& args,
              const peers::LoadStorePeers& peers) {
  grid.launch(
      [&](const exec::HostTeam& team) {
        switch (half) {
          case Half::kSend:
            return kernels::direct::dispatch_send(team, args, peers);
          case Half::kRecv:
            return kernels::direct::dispatch_recv(team, args, peers);
          case Half::kBoth:
            return kernels::direct::dispatch(team, args, peers);
        }
      },
      control);
}

const char* missing_instructions() {
#if defined(__x86_64__) && defined(__FMA__)
  // The kernels' translation units, and only they, are built with these: their sums are fused multiply-adds.
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) {
    return "AVX2, FMA and F16C (x86-64-v3); build with -DMOEWAY_X86_64_V3=OFF for older processors";
  }
#endif
  return nullptr;
}

}  // namespace moeway::launch
