// What the ranks give to a round: tokens, scales, routes, weights. A pure function of seed, round and rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/routes.h"
#include "reference/shape.h"

namespace reference {

enum class Values {
  kExact,      // Small whole numbers and powers of two: every sum is exact in float32, whatever its order.
  kArbitrary,  // Numbers whose sums round: bits agree only if the order and every rounding agree.
  kAnyBits     // Any bytes at all, NaN among them: for dispatch alone.
};

// Dense, row after row.
struct RankInput {
  int64_t num_tokens = 0;
  std::vector<std::byte> x;  // As dispatch delivers them.
  std::vector<std::byte> scales;
  std::vector<std::byte> unquantised;  // bf16: what is given instead of both where dispatch quantises.
  std::vector<int64_t> topk_idx;
  std::vector<float> topk_weights;  // NaN, infinity or 1e30 where the route is -1: nobody may read those.
};

// The elements of x as they are given.
inline const std::vector<std::byte>& given_x(const Shape& shape, const RankInput& input) {
  return shape.quantise == Quantise::kNone ? input.x : input.unquantised;
}

// One round: an input for every rank.
using Batch = std::vector<RankInput>;

// Fills x, scales and weights for the given routes.
RankInput make_input(const Shape& shape, Values values, uint64_t seed, int round, int rank,
                     std::vector<int64_t> topk_idx);

// One input per rank, rank r with num_tokens[r] tokens; with replicas, all ranks of a group with that of its first.
Batch make_batch(const Shape& shape, Values values, Routes routes, const std::vector<int64_t>& num_tokens,
                 uint64_t seed, int round);

enum class Tokens { kRandom, kFull, kSomeEmpty, kOneRank };
// T of every rank: any from 0 to M; M; every second one 0; all but one 0.
std::vector<int64_t> make_num_tokens(const Shape& shape, Tokens tokens, uint64_t seed, int round);

}  // namespace reference
