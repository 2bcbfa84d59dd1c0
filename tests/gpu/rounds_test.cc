// Whole rounds on devices against the reference, in every form that has a kernel of its own.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

// A rank on each device, or several: W 4 and 8 on two.
void run(int num_ranks, Order order, bool view = false) {
  int index = 0;
  for (const LayoutForm& layout : kLayoutForms) {
    if (view && layout.layout != reference::Layout::kTokenMajor) continue;
    for (const TokenForm& form : kTokenForms) {
      Case job;
      job.shape.num_ranks = num_ranks;
      job.shape.num_experts = 2 * num_ranks + 2;
      job.shape.topk = 4;
      job.shape.hidden = 264;
      job.shape.max_tokens = 33;
      layout.apply(job.shape);
      form.apply(job.shape);
      job.shape.row_dtype = kSumTypes[index % 3];
      job.shape.output_dtype = kSumTypes[index / 3 % 3];
      job.values = reference::Values::kArbitrary;
      job.routes = reference::Routes::kMixed;
      job.order = order;
      job.view = view;
      job.rounds = 5;
      job.seed = static_cast<uint64_t>(++index);
      ASSERT_TRUE(expect_passes(job));
    }
  }
}

TEST(Rounds, OfTwoRanksGiveTheReferencesBits) { run(2, Order::kFused); }
TEST(Rounds, OfTwoRanksInPhasesGiveTheReferencesBits) { run(2, Order::kSplit); }
TEST(Rounds, OfTwoRanksThatOverlapGiveTheReferencesBits) { run(2, Order::kPipelined); }
TEST(Rounds, OfFourRanksGiveTheReferencesBits) { run(4, Order::kFused); }
TEST(Rounds, OfFourRanksThatOverlapGiveTheReferencesBits) { run(4, Order::kPipelined); }
TEST(Rounds, OfEightRanksGiveTheReferencesBits) { run(8, Order::kFused); }
TEST(Rounds, ReadWhereTokensLieGiveTheReferencesBits) { run(2, Order::kPipelined, true); }

// As models have them: rows of many units, many experts, views that are not dense.
TEST(Rounds, OfLargeRowsGiveTheReferencesBits) {
  for (const int64_t hidden : {2880, 7168}) {
    for (const TokenForm& form : {kTokenForms[0], kTokenForms[4]}) {
      for (const Views views : {Views::kDense, Views::kStrided}) {
        Case job;
        job.shape.num_ranks = 2;
        job.shape.num_experts = 32;
        job.shape.topk = 8;
        job.shape.hidden = hidden;
        job.shape.max_tokens = 24;
        job.shape.distinct_experts = true;
        kLayoutForms[2].apply(job.shape);
        form.apply(job.shape);
        job.values = reference::Values::kArbitrary;
        job.views = views;
        ASSERT_TRUE(expect_passes(job));
      }
    }
  }
}

// 512 tokens of each rank to the experts of one rank, or to one expert of each; then even routes again.
TEST(Rounds, TheWorstCaseFitsAndTheNextRoundIsRight) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job;
    job.shape.num_ranks = 2;
    job.shape.num_experts = 16;
    job.shape.topk = 4;
    job.shape.hidden = 24;
    job.shape.max_tokens = 512;
    job.shape.distinct_experts = true;
    layout.apply(job.shape);
    job.rounds = 6;
    job.batch = [shape = job.shape](int round) {
      static const std::vector<int64_t> kHot[] = {{0, 1, 2, 3}, {0, 8, 1, 9}, {15, -1, -1, -1}};
      if (round % 2 == 1)
        return make_batch(shape, reference::Values::kExact, reference::Routes::kUniform, {512, 511}, 52, round);
      std::vector<int64_t> routes;
      for (int t = 0; t < 512; ++t) routes.insert(routes.end(), kHot[round / 2].begin(), kHot[round / 2].end());
      reference::Batch batch;
      for (int rank = 0; rank < 2; ++rank)
        batch.push_back(make_input(shape, reference::Values::kExact, 52, round, rank, routes));
      return batch;
    };
    ASSERT_TRUE(expect_passes(job));
  }
}

// The number of blocks changes no bit, whatever the number of tokens it does not divide.
TEST(Rounds, AnyNumberOfMultiprocessorsGivesTheSameBits) {
  for (const int64_t num_tokens : {1, 64, 127, 1029}) {
    Case job;
    job.shape.num_ranks = 2;
    job.shape.num_experts = 6;
    job.shape.topk = 2;
    job.shape.hidden = 24;
    job.shape.max_tokens = num_tokens;
    job.shape.distinct_experts = true;
    kLayoutForms[num_tokens % 5].apply(job.shape);
    job.values = reference::Values::kArbitrary;
    job.tokens = reference::Tokens::kFull;
    job.routes = reference::Routes::kHoles;
    std::vector<std::vector<std::byte>> expected;
    for (const int num_sms : {1, 7, 13, 21, 31, 132}) {
      job.num_sms = num_sms;
      const RanksResult result = run_case(job, As::kThreads);
      ASSERT_EQ(result.failures, "") << num_sms << " multiprocessors, " << describe(job);
      if (expected.empty()) expected = result.given;
      ASSERT_EQ(result.given, expected) << num_sms << " multiprocessors, " << describe(job);
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
