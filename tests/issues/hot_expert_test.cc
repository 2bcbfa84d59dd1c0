// Everything to one expert, or to the experts of one rank: the worst case fits, and the next round is as good as any.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

constexpr int kNumTokens = 64;

// Every token of every rank the same way, then even routes again.
reference::Batch hot_batch(const reference::Shape& shape, int round) {
  static const std::vector<int64_t> kRoutes[] = {
      {0, 1, 2, 3},      // All experts of one rank.
      {0, 4, 8, 12},     // One expert of each rank.
      {15, 15, 15, 15},  // One expert, as often as can be.
      {15, -1, -1, -1},  // One expert, once.
      {12, 13, 14, 15}   // All experts of the last rank.
  };
  if (round % 2 == 1)
    return make_batch(shape, reference::Values::kExact, reference::Routes::kUniform,
                      std::vector<int64_t>(4, kNumTokens), 51, round);
  reference::Batch batch;
  for (int rank = 0; rank < 4; ++rank) {
    std::vector<int64_t> topk_idx;
    for (int t = 0; t < kNumTokens; ++t) {
      const std::vector<int64_t>& token = kRoutes[round / 2 % 5];
      topk_idx.insert(topk_idx.end(), token.begin(), token.end());
    }
    batch.push_back(make_input(shape, reference::Values::kExact, 51, round, rank, topk_idx));
  }
  return batch;
}

TEST(HotExpert, TheWorstCaseFitsAndTheNextRoundIsRight) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job;
    job.shape.num_ranks = 4;
    job.shape.num_experts = 16;
    job.shape.topk = 4;
    job.shape.hidden = 24;
    job.shape.max_tokens = kNumTokens;
    layout.apply(job.shape);
    job.rounds = kSanitizer ? 6 : 10;
    job.batch = [shape = job.shape](int round) { return hot_batch(shape, round); };
    ASSERT_TRUE(expect_passes(job));
    ASSERT_TRUE(expect_passes(job, As::kProcesses));
  }
}

TEST(HotExpert, OneRouteATokenAllToTheLastExpert) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job;
    job.shape.num_ranks = 4;
    job.shape.num_experts = 15;
    job.shape.topk = 1;
    job.shape.max_tokens = kNumTokens;
    layout.apply(job.shape);
    job.routes = reference::Routes::kOneExpert;
    job.tokens = reference::Tokens::kFull;
    ASSERT_TRUE(expect_passes(job));
  }
}

// Nearly all tokens of sixteen ranks with the same experts: 2304 tokens, 144 a rank.
TEST(HotExpert, NearlyAllTokensOfSixteenRanksWithTheSameExperts) {
  Case job;
  job.shape.num_ranks = 16;
  job.shape.num_experts = 64;
  job.shape.topk = 8;
  job.shape.hidden = 4;
  job.shape.max_tokens = 144;
  job.shape.distinct_experts = true;
  kLayoutForms[2].apply(job.shape);
  job.rounds = 1;
  job.num_warps = 2;
  job.batch = [shape = job.shape](int round) {
    reference::Batch batch;
    for (int rank = 0; rank < 16; ++rank) {
      std::vector<int64_t> topk_idx =
          make_routes(shape, reference::Routes::kUniform, 144, 60u + static_cast<uint64_t>(rank));
      for (size_t i = 0; i < 140 * 8; ++i) topk_idx[i] = 3 + 7 * static_cast<int64_t>(i % 8);
      batch.push_back(make_input(shape, reference::Values::kExact, 61, round, rank, topk_idx));
    }
    return batch;
  };
  expect_passes(job);
}

}  // namespace
}  // namespace moeway::multi_rank
