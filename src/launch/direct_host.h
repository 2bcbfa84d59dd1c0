// The direct protocol's kernels on the host.
#pragma once

#include "exec/host/grid.h"
#include "kernels/direct/combine_args.h"
#include "kernels/direct/dispatch_args.h"
#include "launch/choices.h"
#include "peers/load_store.h"

namespace moeway::launch {

void dispatch(exec::HostGrid& grid, exec::LaunchControl& control, Half half, kernels::direct::DispatchArgs args,
              const peers::LoadStorePeers& peers);
void combine(exec::HostGrid& grid, exec::LaunchControl& control, Half half, Element rows, Element sums,
             kernels::direct::CombineArgs args, const peers::LoadStorePeers& peers);

// Whether this processor has the instructions that the kernels were built with; else what is missing.
const char* missing_instructions();

}  // namespace moeway::launch
