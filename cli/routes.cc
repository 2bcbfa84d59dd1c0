#include "cli/routes.h"

#include <algorithm>

namespace moeway::cli {
namespace {

bool names_an_expert_twice(const int32_t* experts, int32_t topk, std::vector<int32_t>& sorted) {
  sorted.assign(experts, experts + topk);
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i] >= 0 && sorted[i] == sorted[i - 1]) return true;
  return false;
}

}  // namespace

int Routes::sender(int rank, int64_t token, int64_t of_group) const {
  const int64_t small = of_group / replicas, num_large = of_group % replicas, in_large = num_large * (small + 1);
  const int64_t member = token < in_large ? token / (small + 1) : num_large + (token - in_large) / small;
  return group(rank) * replicas + static_cast<int>(member);
}

void summarise(Routes& routes) {
  routes.max_tokens = 1;
  routes.distinct_experts = true;
  routes.num_batches = routes.num_tokens = 0;
  std::vector<int32_t> sorted;
  for (const std::vector<Batch>& cycle : routes.of_rank) {
    for (const Batch& batch : cycle) {
      routes.max_tokens = std::max(routes.max_tokens, batch.num_tokens);
      routes.num_tokens += batch.num_tokens;
      ++routes.num_batches;
      for (int64_t t = 0; t < batch.num_tokens && routes.distinct_experts; ++t)
        if (names_an_expert_twice(&batch.experts[static_cast<size_t>(t * routes.topk)], routes.topk, sorted))
          routes.distinct_experts = false;
    }
  }
}

}  // namespace moeway::cli
