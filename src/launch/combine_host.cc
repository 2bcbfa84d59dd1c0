#include "kernels/direct/combine_recv.h"
#include "launch/direct_host.h"

namespace moeway::launch {
namespace {

template <class Config>
void combine_typed(exec::HostGrid& grid, exec::LaunchControl& control, Half half,
                   const kernels::direct::CombineArgs& args, const peers::LoadStorePeers& peers) {
  grid.launch(
      [&](const exec::HostTeam& team) {
        switch (half) {
          case Half::kSend:
            return kernels::direct::combine_send<Config>(team, args, peers);
          case Half::kRecv:
            return kernels::direct::combine_recv<Config>(team, args, peers);
          case Half::kBoth:
            return kernels::direct::combine<Config>(team, args, peers);
        }
      },
      control);
}

}  // namespace

void combine(exec::HostGrid& grid, exec::LaunchControl& control, Half half, Element rows, Element sums,
             kernels::direct::CombineArgs args, const peers::LoadStorePeers& peers) {
  if (is_split(half, args.round.shape().replicated())) {
    combine(grid, control, Half::kSend, rows, sums, args, peers);
    return combine(grid, control, Half::kRecv, rows, sums, args, peers);
  }
  with_type(rows, [&](auto row) {
    args.complete(sizeof(row), exec::HostTeam::kElements);
    with_type(sums, [&](auto sum) {
      with_bool(args.round.shape().results == layout::Results::kReduced, [&](auto reduced) {
        with_usual<decltype(row), decltype(sum)>(kernels::direct::usual(args), [&](auto usual) {
          using Config = kernels::direct::CombineConfig<decltype(row), decltype(sum), decltype(reduced)::value,
                                                        decltype(usual)::value>;
          combine_typed<Config>(grid, control, half, args, peers);
        });
      });
    });
  });
}

}  // namespace moeway::launch
