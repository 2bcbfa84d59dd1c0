// The number of warps that share the work changes no bit, whatever the number of tokens it does not divide.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

void run(const std::vector<int64_t>& token_counts, const std::vector<int>& warp_counts, Execution execution) {
  MOEWAY_SKIP_ON_DEVICES("warps are the host's; multiprocessors: tests/gpu/rounds_test.cc");
  for (const int64_t num_tokens : token_counts) {
    Case job;
    job.shape.num_ranks = 2;
    job.shape.num_experts = 6;
    job.shape.topk = 2;
    job.shape.hidden = 2;
    job.shape.max_tokens = num_tokens;
    job.shape.distinct_experts = true;
    kLayoutForms[num_tokens % 5].apply(job.shape);
    job.values = reference::Values::kArbitrary;
    job.tokens = reference::Tokens::kFull;
    job.routes = reference::Routes::kHoles;
    job.execution = execution;
    job.rounds = 1;
    std::vector<std::vector<std::byte>> expected;
    for (const int num_warps : warp_counts) {
      job.num_warps = num_warps;
      const RanksResult result = run_case(job, As::kThreads);
      ASSERT_EQ(result.failures, "") << describe(job);
      if (expected.empty()) expected = result.given;
      ASSERT_EQ(result.given, expected) << describe(job);
    }
  }
}

const std::vector<int>& all_warps() {
  static const std::vector<int> kWarps = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
  static const std::vector<int> kFewer = {1, 3, 8, 17};
  return kSanitizer ? kFewer : kWarps;
}

TEST(LaunchGeometry, FibersChangeNoBit) { run({1, 63, 64, 65, 127, 129}, all_warps(), kFibers); }
TEST(LaunchGeometry, ThreadsChangeNoBit) { run({1, 63, 64, 65, 127, 129}, all_warps(), kThreads); }
TEST(LaunchGeometry, LanesChangeNoBit) { run({1, 33}, {1, 2, 3, 7, 17}, kLanes); }

TEST(LaunchGeometry, ManyTokensChangeNoBit) { run({4097}, {1, 2, 3, 5, 8, 13, 17}, kFibers); }

// More warps than tokens, up to the most there can be.
TEST(LaunchGeometry, MoreWarpsThanTokens) { run({3}, {1, 64, 255, 256}, kFibers); }

}  // namespace
}  // namespace moeway::multi_rank
