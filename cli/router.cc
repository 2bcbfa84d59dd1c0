#include "cli/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cli/random.h"

namespace moeway::cli {
namespace {

// Draws and memory grow with batches * tokens * experts. Past this many draws, which take a second or two, rounds share
// batches, and then tokens of a batch share routes. Two batches at least: neighbouring rounds should differ.
constexpr double kMaxDraws = 3e7;
constexpr int64_t kMaxBatches = 16;
constexpr int64_t kMinBatches = 2;
constexpr int64_t kMinDrawnTokens = 16;

int64_t num_batches(const RouterOptions& options) {
  const double draws = static_cast<double>(options.tokens) * options.num_ranks * options.num_experts;
  const int64_t affordable = static_cast<int64_t>(std::min(kMaxDraws / draws, static_cast<double>(kMaxBatches)));
  return std::min(options.rounds, std::max(affordable, kMinBatches));
}

// Which expert is the i-th most popular: shuffled, so that the busy ones do not all live on rank 0.
std::vector<double> log_popularity(const RouterOptions& options) {
  std::vector<size_t> order(static_cast<size_t>(options.num_experts));
  std::iota(order.begin(), order.end(), size_t{0});
  Random random(mix({options.seed, 1}));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  std::vector<double> popularity(order.size());
  for (size_t i = 0; i < order.size(); ++i) popularity[order[i]] = -options.skew * std::log(static_cast<double>(i + 1));
  return popularity;
}

// The K largest of log-probability plus Gumbel noise are a draw of K without replacement.
void route_token(const std::vector<double>& popularity, Random& random, int32_t topk, int32_t* experts,
                 float* weights) {
  thread_local std::vector<std::pair<double, int32_t>> scores;
  scores.clear();
  for (size_t e = 0; e < popularity.size(); ++e) {
    const double noise = -std::log(-std::log(random.uniform() + 0x1p-54));
    scores.emplace_back(popularity[e] + noise, static_cast<int32_t>(e));
  }
  std::partial_sort(scores.begin(), scores.begin() + topk, scores.end(), std::greater<>());
  double sum = 0;
  for (int32_t k = 0; k < topk; ++k) sum += std::exp(scores[static_cast<size_t>(k)].first - scores[0].first);
  for (int32_t k = 0; k < topk; ++k) {
    const auto& [score, expert] = scores[static_cast<size_t>(k)];
    experts[k] = expert;
    weights[k] = static_cast<float>(std::exp(score - scores[0].first) / sum);
  }
}

Batch make_batch(const RouterOptions& options, const std::vector<double>& popularity, int64_t max_drawn,
                 uint64_t seed) {
  Random random(seed);
  Batch batch;
  batch.num_tokens = options.tokens;
  if (options.ragged) batch.num_tokens = static_cast<int64_t>(random.below(static_cast<uint64_t>(options.tokens) + 1));
  const size_t topk = static_cast<size_t>(options.topk);
  const size_t num_tokens = static_cast<size_t>(batch.num_tokens);
  const size_t num_drawn = std::min(num_tokens, static_cast<size_t>(max_drawn));
  batch.experts.resize(num_tokens * topk);
  batch.weights.resize(num_tokens * topk);
  for (size_t t = 0; t < num_drawn; ++t)
    route_token(popularity, random, options.topk, &batch.experts[t * topk], &batch.weights[t * topk]);
  for (size_t t = num_drawn; t < num_tokens; ++t) {
    const size_t same = random.below(num_drawn) * topk;
    std::copy_n(&batch.experts[same], topk, &batch.experts[t * topk]);
    std::copy_n(&batch.weights[same], topk, &batch.weights[t * topk]);
  }
  return batch;
}

}  // namespace

Routes skewed_routes(const RouterOptions& options) {
  Routes routes;
  routes.num_experts = options.num_experts;
  routes.topk = options.topk;
  routes.of_rank.resize(static_cast<size_t>(options.num_ranks));
  const std::vector<double> popularity = log_popularity(options);
  const int64_t batches = num_batches(options);
  const double draws_of_a_token = static_cast<double>(batches) * options.num_ranks * options.num_experts;
  const int64_t max_drawn = std::max(static_cast<int64_t>(kMaxDraws / draws_of_a_token), kMinDrawnTokens);
  for (int rank = 0; rank < options.num_ranks; ++rank)
    for (int64_t b = 0; b < batches; ++b)
      routes.of_rank[static_cast<size_t>(rank)].push_back(
          make_batch(options, popularity, max_drawn,
                     mix({options.seed, 2, static_cast<uint64_t>(rank), static_cast<uint64_t>(b)})));
  routes.source = fmt::format("built-in router, skew {:g}, seed {}", options.skew, options.seed);
  summarise(routes);
  routes.max_tokens = options.tokens;  // As asked for, also if no ragged batch came out as large.
  return routes;
}

}  // namespace moeway::cli
