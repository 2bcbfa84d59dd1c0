// The routing decisions of a job: for every rank a cycle of batches, one for each round.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moeway::cli {

// Token t's route k goes to experts[t * topk + k], -1 for none, with weights[t * topk + k].
struct Batch {
  int64_t num_tokens = 0;
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

struct Routes {
  int32_t num_experts = 1;
  int32_t topk = 1;
  int64_t max_tokens = 1;                   // Tokens of the largest batch, at least 1.
  bool distinct_experts = true;             // No token names an expert twice.
  int replicas = 1;                         // Consecutive ranks that hold the same tokens: a group.
  std::vector<std::vector<Batch>> of_rank;  // With replicas: of group.

  std::string source;              // Where they come from, for the reader of the report.
  int64_t num_batches = 0;         // Distinct batches, over all ranks.
  int64_t num_tokens = 0;          // Tokens of those.
  std::vector<std::string> notes;  // What the reader of a report should know about them.

  // Ranks may have cycles of different length, so the combination over the ranks changes for longer than each cycle.
  const Batch& batch(int64_t round, int rank) const {
    static const Batch kEmpty;
    const std::vector<Batch>& cycle = of_rank[static_cast<size_t>(group(rank))];
    return cycle.empty() ? kEmpty : cycle[static_cast<size_t>(round) % cycle.size()];
  }
  int group(int rank) const { return rank / replicas; }
  // The rank of `rank`'s group that sends a token when the group has `of_group` tokens: the first ones send one more.
  int sender(int rank, int64_t token, int64_t of_group) const;
};

// Fills in what follows from the batches: max_tokens, distinct_experts, num_batches and num_tokens.
void summarise(Routes& routes);

}  // namespace moeway::cli
