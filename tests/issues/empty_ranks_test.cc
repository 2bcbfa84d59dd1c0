// A rank that sends nothing or receives nothing takes part like any other: it gets no rows, and nobody waits for data
// that will not come.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case empty_case(const LayoutForm& layout, std::vector<std::vector<int64_t>> num_tokens, reference::Routes routes) {
  Case job;
  job.shape.num_ranks = 4;
  job.shape.num_experts = 8;
  job.shape.topk = 2;
  job.shape.hidden = 64;
  job.shape.max_tokens = 16;
  layout.apply(job.shape);
  job.rounds = scaled(50);
  job.max_delay_us = 500;
  job.seed = 41;
  const reference::Shape shape = job.shape;
  job.batch = [=](int round) {
    return make_batch(shape, reference::Values::kExact, routes,
                      num_tokens[static_cast<size_t>(round) % num_tokens.size()], 41, round);
  };
  return job;
}

void run(const std::vector<std::vector<int64_t>>& num_tokens, reference::Routes routes) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = empty_case(layout, num_tokens, routes);
    job.views = Views::kStrided;  // Tensors of no rows are null half of the time.
    ASSERT_TRUE(expect_passes(job));
    job.order = Order::kSplit;
    ASSERT_TRUE(expect_passes(job, As::kProcesses));
  }
}

TEST(EmptyRanks, ARankWithoutTokensTakesPart) { run({{8, 8, 8, 0}}, reference::Routes::kUniform); }

TEST(EmptyRanks, ARankThatNobodySendsToTakesPart) { run({{8, 8, 8, 8}}, reference::Routes::kFewRanks); }

TEST(EmptyRanks, ARankThatNeitherSendsNorReceivesTakesPart) { run({{8, 8, 8, 0}}, reference::Routes::kFewRanks); }

TEST(EmptyRanks, AllRanksMayBeEmptyAndFullInTurn) {
  run({{0, 0, 0, 0}, {16, 0, 0, 0}, {0, 0, 0, 16}, {16, 16, 16, 16}, {0, 0, 0, 0}}, reference::Routes::kUniform);
}

TEST(EmptyRanks, TokensWithoutAnyRoute) { run({{8, 0, 3, 16}}, reference::Routes::kNone); }

TEST(EmptyRanks, ARankWithoutExpertsTakesPart) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = empty_case(layout, {{8, 8, 8, 8}}, reference::Routes::kUniform);
    job.batch = nullptr;
    job.shape.num_experts = 2;
    job.rounds = scaled(10);
    ASSERT_TRUE(expect_passes(job));
    ASSERT_TRUE(expect_passes(job, As::kProcesses));
  }
}

// Sixteen ranks, most of them idle, as at the start of a serving engine.
TEST(EmptyRanks, FifteenOfSixteenAreIdle) {
  Case job;
  job.shape.num_ranks = 16;
  job.shape.num_experts = 32;
  job.shape.topk = 4;
  job.shape.max_tokens = 4;
  job.tokens = reference::Tokens::kOneRank;
  job.rounds = scaled(20);
  job.num_warps = 2;
  expect_passes(job);
}

}  // namespace
}  // namespace moeway::multi_rank
