// Which rank owns which expert, and the handle that ties a combine to its dispatch.
#pragma once

#include <moeway/c_api.h>

namespace moeway {

// Plain data: copy it freely, nothing to free. See moeway_routing for how long it is valid.
using Routing = ::moeway_routing;

// The same routes with all weights taken as 1, for the combine that is the backward of a dispatch.
inline Routing unweighted(Routing routing) {
  routing.unweighted = 1;
  return routing;
}

// The first E mod W ranks own ceil(E / W) consecutive experts, the others floor(E / W). -1 if an argument is out of
// range.
inline int expert_owner(int expert, int num_experts, int num_ranks) {
  return moeway_expert_owner(expert, num_experts, num_ranks);
}
inline int first_expert(int rank, int num_experts, int num_ranks) {
  return moeway_first_expert(rank, num_experts, num_ranks);
}
inline int num_local_experts(int rank, int num_experts, int num_ranks) {
  return moeway_num_local_experts(rank, num_experts, num_ranks);
}

}  // namespace moeway
