#include "exec/host/processor.h"
#include "kernels/direct/dispatch.h"
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

const char* missing_instructions() { return exec::missing_instructions(); }

}  // namespace moeway::launch
