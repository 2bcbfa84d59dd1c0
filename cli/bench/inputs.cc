#include "cli/bench/inputs.h"

#include <algorithm>

#include "cli/pattern.h"
#include "cli/random.h"

namespace moeway::cli {
namespace {

// The first `topk` of a shuffle of all experts; `experts` holds any order of them and is left in another one.
void choose(Random& random, std::vector<int32_t>& experts, int32_t topk, int32_t* chosen) {
  for (int32_t k = 0; k < topk; ++k) {
    const auto at = static_cast<size_t>(k);
    std::swap(experts[at], experts[at + random.below(experts.size() - at)]);
    chosen[k] = experts[at];
  }
}

Batch uniform_batch(int64_t tokens, int32_t num_experts, int32_t topk, uint64_t seed) {
  Random random(seed);
  Batch batch;
  batch.num_tokens = tokens;
  batch.experts.resize(static_cast<size_t>(tokens * topk));
  batch.weights.resize(batch.experts.size());
  std::vector<int32_t> experts(static_cast<size_t>(num_experts));
  for (int32_t e = 0; e < num_experts; ++e) experts[static_cast<size_t>(e)] = e;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto first = static_cast<size_t>(t * topk);
    choose(random, experts, topk, &batch.experts[first]);
    double sum = 0;
    std::vector<double> drawn(static_cast<size_t>(topk));
    for (double& weight : drawn) sum += weight = 0.1 + random.uniform();
    for (size_t k = 0; k < drawn.size(); ++k) batch.weights[first + k] = static_cast<float>(drawn[k] / sum);
  }
  return batch;
}

}  // namespace

Routes uniform_routes(const Series& series, int64_t tokens) {
  Routes routes;
  routes.num_experts = series.config.num_experts;
  routes.topk = series.config.topk;
  routes.of_rank.resize(static_cast<size_t>(series.num_ranks));
  for (int rank = 0; rank < series.num_ranks; ++rank)
    for (int set = 0; set < series.sets; ++set)
      routes.of_rank[static_cast<size_t>(rank)].push_back(
          uniform_batch(tokens, routes.num_experts, routes.topk,
                        mix({series.seed, 3, static_cast<uint64_t>(tokens), static_cast<uint64_t>(rank),
                             static_cast<uint64_t>(set)})));
  routes.source = "uniform";
  routes.max_tokens = tokens;
  routes.distinct_experts = true;
  routes.num_batches = int64_t{series.num_ranks} * series.sets;
  routes.num_tokens = routes.num_batches * tokens;
  return routes;
}

Placement::Placement(const AllToAllConfig& config, int64_t expert_capacity, const Routes& routes, int set,
                     int num_ranks) {
  const std::vector<int32_t> owners = expert_owners(config.num_experts, num_ranks);
  expert_rows_.resize(owners.size());
  for (int source = 0; source < num_ranks; ++source)
    for (const int32_t expert : routes.batch(set, source).experts) ++expert_rows_[static_cast<size_t>(expert)];
  if (config.layout == kTokenMajor) {
    for (int source = 0; source < num_ranks; ++source) runs_.push_back({source * config.max_tokens, config.max_tokens});
  } else {
    int64_t next = 0;
    for (size_t e = 0, local = 0; e < owners.size(); ++e, ++local) {
      if (e > 0 && owners[e] != owners[e - 1]) next = 0, local = 0;
      if (config.layout == kExpertPadded) next = static_cast<int64_t>(local) * expert_capacity;
      next = (next + config.alignment - 1) / config.alignment * config.alignment;
      runs_.push_back({next, expert_rows_[e]});
      next += expert_rows_[e];
    }
  }
  std::vector<int64_t> free(owners.size());
  for (size_t e = 0; e < free.size() && config.layout != kTokenMajor; ++e) free[e] = runs_[e].first;
  rows_.resize(static_cast<size_t>(num_ranks));
  for (int source = 0; source < num_ranks; ++source) {
    const Batch& batch = routes.batch(set, source);
    std::vector<int64_t>& rows = rows_[static_cast<size_t>(source)];
    for (size_t route = 0; route < batch.experts.size(); ++route)
      rows.push_back(config.layout == kTokenMajor
                         ? source * config.max_tokens + static_cast<int64_t>(route) / config.topk
                         : free[static_cast<size_t>(batch.experts[route])]++);
  }
}

int64_t tokens_sent(const Routes& routes, int set, int rank, int num_ranks) {
  const std::vector<int32_t> owners = expert_owners(routes.num_experts, num_ranks);
  const Batch& batch = routes.batch(set, rank);
  int64_t sent = 0;
  std::vector<int64_t> last_token(static_cast<size_t>(num_ranks), -1);
  for (size_t route = 0; route < batch.experts.size(); ++route) {
    const auto token = static_cast<int64_t>(route) / routes.topk;
    int64_t& last = last_token[static_cast<size_t>(owners[static_cast<size_t>(batch.experts[route])])];
    if (last != token) ++sent;
    last = token;
  }
  return sent;
}

}  // namespace moeway::cli
