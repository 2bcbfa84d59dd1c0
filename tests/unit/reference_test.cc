// The oracle itself, against cases small enough to be worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "reference/oracle.h"

namespace reference {
namespace {

std::vector<float> numbers(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> values;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(dtype_bytes(dtype)))
    values.push_back(load(dtype, bytes.data() + at));
  return values;
}

RankInput given(const Shape& shape, const std::vector<float>& x, std::vector<int64_t> topk_idx,
                std::vector<float> topk_weights) {
  RankInput input;
  input.num_tokens = static_cast<int64_t>(topk_idx.size()) / shape.topk;
  input.topk_idx = std::move(topk_idx);
  input.topk_weights = std::move(topk_weights);
  const auto width = static_cast<size_t>(dtype_bytes(shape.dispatch_dtype));
  input.x.resize(x.size() * width);
  for (size_t i = 0; i < x.size(); ++i) store(shape.dispatch_dtype, x[i], input.x.data() + i * width);
  return input;
}

// Two ranks, five experts (rank 0 has 0 to 2, rank 1 has 3 and 4), one number per token.
Shape small_shape() {
  Shape shape;
  shape.num_ranks = 2;
  shape.num_experts = 5;
  shape.topk = 2;
  shape.hidden = 1;
  shape.max_tokens = 3;
  return shape;
}

Batch small_batch(const Shape& shape) {
  return {given(shape, {1, 2, 3}, {4, 0, -1, 4, 0, 0}, {0.5f, 0.25f, NAN, 2, 0.5f, 1}),
          given(shape, {5}, {0, 4}, {1, 0.5f})};
}

TEST(Reference, TheFirstRanksOwnTheExpertsThatAreLeftOver) {
  const Shape shape = small_shape();
  EXPECT_EQ(shape.num_local_experts(0), 3);
  EXPECT_EQ(shape.num_local_experts(1), 2);
  EXPECT_EQ(shape.first_expert(1), 3);
  EXPECT_EQ(shape.owner(2), 0);
  EXPECT_EQ(shape.owner(3), 1);
  Shape few = small_shape();
  few.num_ranks = 7;
  EXPECT_EQ(few.owner(4), 4);
  EXPECT_EQ(few.num_local_experts(6), 0);
}

TEST(Reference, RowsOfAnExpertComeBySourceThenTokenThenRoute) {
  const Shape shape = small_shape();
  const Received received = expected_dispatch(shape, small_batch(shape), 0, 20);
  EXPECT_EQ(received.num_rows, (std::vector<int32_t>{4, 0, 0}));
  EXPECT_EQ(received.first_row, (std::vector<int64_t>{0, 20, 40}));
  ASSERT_EQ(received.rows.size(), 4u);
  const int expected[4][3] = {{0, 0, 1}, {0, 2, 0}, {0, 2, 1}, {1, 0, 0}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(received.rows[i].source, expected[i][0]);
    EXPECT_EQ(received.rows[i].token, expected[i][1]);
    EXPECT_EQ(received.rows[i].k, expected[i][2]);
    EXPECT_EQ(received.rows[i].position, static_cast<int64_t>(i));
  }
}

TEST(Reference, PackedExpertsStartAtMultiplesOfTheAlignment) {
  Shape shape = small_shape();
  shape.layout = Layout::kExpertPacked;
  shape.alignment = 8;
  const Batch batch = {given(shape, {1, 2}, {3, 4, 4, 3}, {1, 1, 1, 1}), given(shape, {}, {}, {})};
  const Received received = expected_dispatch(shape, batch, 1, 0);
  EXPECT_EQ(received.first_row, (std::vector<int64_t>{0, 8}));
  EXPECT_EQ(received.rows[3].position, 9);
}

TEST(Reference, TokenMajorPutsATokenInTheRowOfItsSourceAndNumber) {
  Shape shape = small_shape();
  shape.layout = Layout::kTokenMajor;
  const Received received = expected_dispatch(shape, small_batch(shape), 1, 0);
  ASSERT_EQ(received.tokens.size(), 3u);
  EXPECT_EQ(received.tokens[2].position, 3);  // Rank 1's token 0, behind M = 3 rows of rank 0.
  EXPECT_EQ(received.num_rows, (std::vector<int32_t>{0, 3}));
  EXPECT_EQ(received.topk_idx, (std::vector<int32_t>{1, -1, -1, 1, -1, -1, -1, 1, -1, -1, -1, -1}));
  EXPECT_EQ(received.topk_weights, (std::vector<float>{0.5f, 0, 0, 2, 0, 0, 0, 0.5f, 0, 0, 0, 0}));
}

TEST(Reference, CombineAddsTheWeightedRows) {
  Shape shape = small_shape();
  for (const Weights weights : {Weights::kAtDispatch, Weights::kAtCombine}) {
    shape.weights = weights;
    const Batch batch = small_batch(shape);
    // Expert e multiplies by 2^(e mod 4): experts 0 and 4 by 1.
    EXPECT_EQ(numbers(DType::kBf16, expected_combine(shape, Values::kExact, batch[0])),
              (std::vector<float>{0.75f, 4, 4.5f}));
    EXPECT_EQ(numbers(DType::kBf16, expected_combine(shape, Values::kExact, batch[1])), (std::vector<float>{7.5f}));
  }
}

TEST(Reference, ATokenWithoutRoutesGivesPositiveZero) {
  const Shape shape = small_shape();
  const RankInput input = given(shape, {7}, {-1, -1}, {NAN, NAN});
  EXPECT_EQ(expected_combine(shape, Values::kExact, input), std::vector<std::byte>(2));
}

// 1 + 2^-8 lies half-way between two bf16 numbers and goes to the even one, 1. Where the second rank's 2^-8 is added
// to an already rounded 1, nothing is left of either.
TEST(Reference, PartialSumsAreRoundedWhereWeightsTravelWithTheTokens) {
  Shape shape = small_shape();
  shape.topk = 3;
  const RankInput input = given(shape, {1}, {0, 0, 4}, {1, 0x1p-8f, 0x1p-8f});
  shape.weights = Weights::kAtDispatch;
  EXPECT_EQ(numbers(DType::kBf16, expected_combine(shape, Values::kExact, input)), (std::vector<float>{1}));
  shape.weights = Weights::kAtCombine;
  EXPECT_EQ(numbers(DType::kBf16, expected_combine(shape, Values::kExact, input)),
            (std::vector<float>{1.0f + 0x1p-7f}));
}

// 0.1f * 10 is not 1 in exact arithmetic; only a fused operation keeps the difference.
TEST(Reference, ProductsAreNotRoundedBeforeTheyAreAdded) {
  Shape shape = small_shape();
  shape.row_dtype = shape.output_dtype = shape.dispatch_dtype = DType::kF32;
  shape.weights = Weights::kAtCombine;
  const RankInput input = given(shape, {10}, {0, 0}, {-0.1f, 0.1f});
  const float left = static_cast<float>(static_cast<double>(0.1f) * 10 - 1);
  ASSERT_NE(left, 0.0f);
  EXPECT_EQ(numbers(DType::kF32, expected_combine(shape, Values::kExact, input)), (std::vector<float>{left}));
}

TEST(Reference, AScaleCountsForItsBlockOf128) {
  Shape shape = small_shape();
  shape.hidden = 129;
  shape.dispatch_dtype = DType::kF8E4M3;
  shape.scales = Scales::kUe8m0;
  ASSERT_EQ(shape.num_scales(), 2);
  RankInput input = given(shape, std::vector<float>(129, 3.0f), {0, -1}, {1, NAN});
  input.scales = {std::byte{127}, std::byte{129}};
  const std::vector<float> y = numbers(DType::kBf16, expected_combine(shape, Values::kExact, input));
  EXPECT_EQ(y[127], 3.0f);
  EXPECT_EQ(y[128], 12.0f);
}

TEST(Reference, TrafficCountsATokenOncePerRank) {
  const Shape shape = small_shape();
  const Traffic traffic = expected_traffic(shape, small_batch(shape)[0], 0);
  EXPECT_EQ(traffic.tokens_sent, 4);
  EXPECT_EQ(traffic.routes_sent, 5);
  EXPECT_EQ(traffic.dispatch_sent_bytes, 8);
}

TEST(Reference, RoutesKeepToTheirPattern) {
  Shape shape;
  shape.num_ranks = 3;
  shape.num_experts = 10;
  shape.topk = 4;
  for (const Routes routes : kAllRoutes) {
    const std::vector<int64_t> topk_idx = make_routes(shape, routes, 50, 9);
    ASSERT_EQ(topk_idx.size(), 200u);
    std::set<int> ranks;
    for (size_t i = 0; i < topk_idx.size(); ++i) {
      ASSERT_GE(topk_idx[i], -1);
      ASSERT_LT(topk_idx[i], shape.num_experts);
      if (topk_idx[i] >= 0) ranks.insert(shape.owner(static_cast<int>(topk_idx[i])));
    }
    const size_t expected = routes == Routes::kNone ? 0
                            : routes == Routes::kOneExpert || routes == Routes::kOneRank || routes == Routes::kFewRanks
                                ? 1
                                : 3;
    EXPECT_EQ(ranks.size(), expected) << routes_name(routes);
  }
}

TEST(Reference, DistinctExpertsAreDistinct) {
  Shape shape;
  shape.num_experts = 5;
  shape.topk = 4;
  shape.distinct_experts = true;
  for (const Routes routes : kAllRoutes) {
    const std::vector<int64_t> topk_idx = make_routes(shape, routes, 40, 3);
    for (size_t t = 0; t < 40; ++t) {
      std::multiset<int64_t> seen(topk_idx.begin() + static_cast<std::ptrdiff_t>(t * 4),
                                  topk_idx.begin() + static_cast<std::ptrdiff_t>(t * 4 + 4));
      for (const int64_t expert : seen) ASSERT_TRUE(expert < 0 || seen.count(expert) == 1) << routes_name(routes);
    }
  }
}

TEST(Reference, InputsDifferBetweenRanksAndRoundsAndRepeatWithTheirSeed) {
  const Shape shape = small_shape();
  const std::vector<int64_t> routes = {0, 1, 2, 3, 4, 0};
  for (const Values values : {Values::kExact, Values::kArbitrary, Values::kAnyBits}) {
    const RankInput input = make_input(shape, values, 1, 0, 0, routes);
    EXPECT_EQ(input.x, make_input(shape, values, 1, 0, 0, routes).x);
    EXPECT_NE(input.x, make_input(shape, values, 1, 0, 1, routes).x);
    EXPECT_NE(input.x, make_input(shape, values, 1, 1, 0, routes).x);
    EXPECT_NE(input.x, make_input(shape, values, 2, 0, 0, routes).x);
  }
}

}  // namespace
}  // namespace reference
