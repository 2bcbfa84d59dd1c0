// No hidden limits: any number of experts, routes and ranks works, or is refused at creation.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case limits_case(int num_ranks, int num_experts, int topk, const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = num_ranks;
  job.shape.num_experts = num_experts;
  job.shape.topk = topk;
  job.shape.hidden = 6;
  job.shape.max_tokens = 3;
  job.shape.distinct_experts = true;
  layout.apply(job.shape);
  job.routes = reference::Routes::kUniform;
  job.rounds = 1;
  job.num_warps = 2;
  return job;
}

TEST(Limits, AnyNumberOfExperts) {
  for (const int num_experts : {1, 3, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 4096}) {
    for (const LayoutForm& layout : kLayoutForms)
      ASSERT_TRUE(expect_passes(limits_case(3, num_experts, std::min(num_experts, 4), layout)));
  }
}

TEST(Limits, AnyNumberOfRoutes) {
  constexpr int kExperts = 130;
  for (const int topk : {1, 2, 8, 9, 10, 11, 12, 14, 16, 22, 31, 32, 33, 64, kExperts}) {
    for (const LayoutForm& layout : kLayoutForms) ASSERT_TRUE(expect_passes(limits_case(2, kExperts, topk, layout)));
  }
}

TEST(Limits, AnyNumberOfRanks) {
  for (const int num_ranks : {1, 2, 3, 5, 6, 7, 8, 9, 16}) {
    for (const LayoutForm& layout : kLayoutForms)
      ASSERT_TRUE(expect_passes(limits_case(num_ranks, 4 * num_ranks, 4, layout)));
  }
}

TEST(Limits, MoreRanksThanAnyTableOf64Or128) {
  if (kThreadSanitizer) GTEST_SKIP() << "takes too long under ThreadSanitizer: 65 and 130 ranks";
  MOEWAY_SKIP_ON_DEVICES("more ranks of a device than it has queues for streams that wait for each other");
  for (const int num_ranks : {65, 130}) {
    Case job = limits_case(num_ranks, 2 * num_ranks, 3, kLayoutForms[2]);
    job.num_warps = 1;
    ASSERT_TRUE(expect_passes(job));
  }
}

TEST(Limits, MoreRoutesThanExpertsAreRefusedOnAllRanks) {
  const RanksResult result = run_ranks({3, As::kThreads, std::chrono::seconds(30), true}, [](Rank& rank) {
    AllToAllConfig config;
    config.num_experts = 5;
    config.topk = 6;
    config.hidden = 8;
    config.max_tokens = 4;
    const Status status = AllToAll::create(rank.communicator(), config).status();
    rank.expect_error(status, MOEWAY_INVALID_ARGUMENT, {"topk", "6", "5"}, "create");
    rank.give(status.message());
  });
  EXPECT_EQ(result.failures, "");
  EXPECT_EQ(result.text(0), result.text(1));
  EXPECT_EQ(result.text(0), result.text(2));
}

}  // namespace
}  // namespace moeway::multi_rank
