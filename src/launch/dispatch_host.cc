#include "exec/host/processor.h"
#include "kernels/direct/dispatch.h"
#include "launch/direct_host.h"

namespace moeway::launch {

void dispatch(exec::HostGrid& grid, exec::LaunchControl& control, Half half, kernels::direct::DispatchArgs args,
              const peers::LoadStorePeers& peers) {
  if (is_split(half, args.round.shape().replicated())) {
    dispatch(grid, control, Half::kSend, args, peers);
    return dispatch(grid, control, Half::kRecv, args, peers);
  }
  args.complete();
  const layout::Shape& shape = args.round.shape();
  with_bool(shape.rows == layout::Rows::kTokenMajor, [&](auto token_major) {
    with_bool(kernels::direct::usual(args, 1), [&](auto usual) {
      with_bool(shape.quantises(), [&](auto quantise) {
        using Config = kernels::direct::DispatchConfig<decltype(token_major)::value, decltype(usual)::value,
                                                       decltype(quantise)::value>;
        grid.launch(
            [&](const exec::HostTeam& team) {
              switch (half) {
                case Half::kSend:
                  return kernels::direct::dispatch_send<Config>(team, args, peers);
                case Half::kRecv:
                  return kernels::direct::dispatch_recv<Config>(team, args, peers);
                case Half::kBoth:
                  return kernels::direct::dispatch<Config>(team, args, peers);
              }
            },
            control);
      });
    });
  });
}

const char* missing_instructions() { return exec::missing_instructions(); }

}  // namespace moeway::launch
