// A router for those who have no routes at hand: skewed as real ones are, the same for the same seed.
#pragma once

#include <cstdint>

#include "cli/routes.h"

namespace moeway::cli {

struct RouterOptions {
  int num_ranks = 1;
  int32_t num_experts = 64;
  int32_t topk = 8;
  int64_t tokens = 128;  // Per rank and round.
  int64_t rounds = 1;    // Distinct batches made for a rank: so many, or fewer where they would be large.
  double skew = 0.8;     // The i-th most popular expert is chosen in proportion to 1 / i^skew; 0 is no skew.
  bool ragged = false;   // Every batch has its own number of tokens, from 0 to `tokens`.
  uint64_t seed = 0;
};

// K different experts a token, drawn one after another; weights as a softmax over the chosen ones gives them.
Routes skewed_routes(const RouterOptions& options);

}  // namespace moeway::cli
