#include "reference/routes.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace reference {
namespace {

// `count` different values of `from`, the first ones `bias` times likelier to come early; the rest is -1.
void draw_distinct(Random& random, const std::vector<int64_t>& from, double bias, int64_t* token, int count) {
  std::vector<std::pair<double, int64_t>> keyed;
  keyed.reserve(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    // Efraimidis and Spirakis: the largest u^(1/weight) are a weighted draw without replacement.
    const double weight = 1.0 / std::pow(static_cast<double>(i + 1), bias);
    keyed.emplace_back(std::log(random.fraction() + 1e-300) / weight, from[i]);
  }
  const auto taken = std::min(static_cast<size_t>(count), keyed.size());
  std::partial_sort(keyed.begin(), keyed.begin() + static_cast<std::ptrdiff_t>(taken), keyed.end(), std::greater<>());
  for (int k = 0; k < count; ++k) token[k] = static_cast<size_t>(k) < taken ? keyed[static_cast<size_t>(k)].second : -1;
}

std::vector<int64_t> experts_of(const Shape& shape, int first_rank, int last_rank) {
  std::vector<int64_t> experts;
  for (int r = first_rank; r <= last_rank; ++r)
    for (int i = 0; i < shape.num_local_experts(r); ++i) experts.push_back(shape.first_expert(r) + i);
  return experts;
}

void route_token(const Shape& shape, Routes routes, Random& random, int hot_rank, int64_t* token) {
  const int topk = shape.topk;
  std::vector<int64_t> all(static_cast<size_t>(shape.num_experts));
  std::iota(all.begin(), all.end(), 0);
  switch (routes) {
    case Routes::kUniform:
      draw_distinct(random, all, 0, token, topk);
      return;
    case Routes::kZipf:
      draw_distinct(random, all, 1.2, token, topk);
      return;
    case Routes::kHoles:
      draw_distinct(random, all, 0, token, topk);
      for (int k = 0; k < topk; ++k)
        if (random.chance(33)) token[k] = -1;
      if (random.chance(20)) std::fill(token, token + topk, -1);
      return;
    case Routes::kRepeats:
      for (int k = 0; k < topk; ++k) token[k] = random.between(0, shape.num_experts - 1);
      return;
    case Routes::kOneExpert:
      std::fill(token, token + topk, shape.num_experts - 1);
      return;
    case Routes::kOneRank: {
      const std::vector<int64_t> local = experts_of(shape, hot_rank, hot_rank);
      for (int k = 0; k < topk; ++k) token[k] = local.empty() ? -1 : local[static_cast<size_t>(k) % local.size()];
      return;
    }
    case Routes::kFewRanks:
      draw_distinct(random, experts_of(shape, 0, std::max(0, shape.num_ranks / 2 - 1)), 0, token, topk);
      return;
    case Routes::kNone:
      std::fill(token, token + topk, -1);
      return;
    case Routes::kMixed:
      route_token(shape, kAllRoutes[random.next() % 8], random, hot_rank, token);
      return;
  }
  std::abort();
}

}  // namespace

const char* routes_name(Routes routes) {
  static const char* const kNames[] = {"uniform",  "zipf",      "holes", "repeats", "one expert",
                                       "one rank", "few ranks", "none",  "mixed"};
  return kNames[static_cast<int>(routes)];
}

std::vector<int64_t> make_routes(const Shape& shape, Routes routes, int64_t num_tokens, uint64_t seed) {
  Random random(seed);
  const auto topk = static_cast<size_t>(shape.topk);
  const int hot_rank = static_cast<int>(random.between(0, shape.num_ranks - 1));
  std::vector<int64_t> topk_idx(static_cast<size_t>(num_tokens) * topk, -1);
  for (size_t t = 0; t < static_cast<size_t>(num_tokens); ++t) {
    int64_t* token = topk_idx.data() + t * topk;
    route_token(shape, routes, random, hot_rank, token);
    if (!shape.distinct_experts) continue;
    for (size_t k = 1; k < topk; ++k)
      if (std::find(token, token + k, token[k]) != token + k) token[k] = -1;
  }
  return topk_idx;
}

}  // namespace reference
