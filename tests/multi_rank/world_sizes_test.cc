// The same tokens over jobs of different size. Where the token's owner adds, the number of ranks changes no bit; where
// each rank rounds its share first, it changes no more than those roundings can.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

constexpr int kNumTokens = 96;
constexpr int kWorldSizes[] = {1, 2, 3, 5, 7, 8, 16, 64};

reference::Shape shape_of(int num_ranks, const LayoutForm& layout, reference::DType output) {
  reference::Shape shape;
  shape.num_ranks = num_ranks;
  shape.num_experts = 40;  // Fewer than 64: some ranks own none.
  shape.topk = 6;
  shape.hidden = 20;
  shape.max_tokens = (kNumTokens + num_ranks - 1) / num_ranks;
  layout.apply(shape);
  shape.output_dtype = output;
  shape.distinct_experts = true;
  return shape;
}

// Tokens begin to end of a long input.
reference::RankInput slice(const reference::Shape& shape, const reference::RankInput& all, int64_t begin, int64_t end) {
  const auto part = [&](const auto& values, int64_t per_token) {
    return std::decay_t<decltype(values)>(values.begin() + begin * per_token, values.begin() + end * per_token);
  };
  reference::RankInput input;
  input.num_tokens = end - begin;
  input.x = part(all.x, shape.row_bytes());
  input.topk_idx = part(all.topk_idx, shape.topk);
  input.topk_weights = part(all.topk_weights, shape.topk);
  return input;
}

reference::RankInput all_tokens(const reference::Shape& shape) {
  return make_input(shape, reference::Values::kArbitrary, 5, 0, 0,
                    make_routes(shape, reference::Routes::kHoles, kNumTokens, 6));
}

Case case_of(int num_ranks, const LayoutForm& layout, reference::DType output) {
  Case job;
  job.shape = shape_of(num_ranks, layout, output);
  job.values = reference::Values::kArbitrary;
  job.rounds = 1;
  job.num_warps = 2;
  // Uneven shares, empty ones among them, in the order of the tokens.
  const reference::Shape shape = job.shape;
  job.batch = [shape](int) {
    const reference::RankInput all = all_tokens(shape);
    reference::Batch batch;
    for (int64_t r = 0, begin = 0; r < shape.num_ranks; ++r) {
      const int64_t end = std::min<int64_t>(begin + shape.max_tokens, kNumTokens);
      batch.push_back(slice(shape, all, begin, end));
      begin = end;
    }
    return batch;
  };
  return job;
}

// All tokens' sums, in the order of the tokens.
std::vector<std::byte> sums(const Case& job) {
  const RanksResult result = run_case(job, As::kThreads);
  EXPECT_EQ(result.failures, "") << describe(job);
  std::vector<std::byte> all;
  for (const std::vector<std::byte>& y : result.given) all.insert(all.end(), y.begin(), y.end());
  return all;
}

TEST(WorldSizes, WithWeightsAtCombineTheNumberOfRanksChangesNoBit) {
  for (const LayoutForm& layout : {kLayoutForms[1], kLayoutForms[3]}) {
    for (const reference::DType output : kSumTypes) {
      const std::vector<std::byte> expected = sums(case_of(1, layout, output));
      for (const int num_ranks : kWorldSizes) {
        if (kThreadSanitizer && num_ranks > 8) continue;
        ASSERT_EQ(sums(case_of(num_ranks, layout, output)), expected) << num_ranks << " ranks";
      }
    }
  }
}

// The largest relative error of rounding to a type once.
double unit(reference::DType dtype) {
  return dtype == reference::DType::kBf16 ? 0x1p-8 : dtype == reference::DType::kF16 ? 0x1p-11 : 0x1p-24;
}

// Of every element: how far two jobs' sums may be apart. In each, the ranks' shares (together no larger than the sizes
// of all products) are rounded to the type in which they travel and the total to the output's; the last term is for the
// float32 additions in between.
std::vector<double> rounding_bounds(const reference::Shape& shape, const reference::RankInput& input) {
  const bool token_major = shape.layout == reference::Layout::kTokenMajor;
  const double travel = unit(token_major ? shape.row_dtype : shape.output_dtype);
  const double relative = 2 * (travel + unit(shape.output_dtype)) * (1 + travel) + 0x1p-18;
  std::vector<double> bounds;
  for (int64_t t = 0; t < input.num_tokens; ++t) {
    std::vector<double> sizes(static_cast<size_t>(shape.hidden), 0.0);
    for (int k = 0; k < shape.topk; ++k) {
      const auto route = static_cast<size_t>(t * shape.topk + k);
      if (input.topk_idx[route] < 0) continue;
      const std::vector<std::byte> row =
          expert_row(shape, reference::Values::kArbitrary, static_cast<int>(input.topk_idx[route]),
                     input.x.data() + t * shape.row_bytes(), nullptr);
      for (size_t h = 0; h < sizes.size(); ++h)
        sizes[h] +=
            std::fabs(static_cast<double>(input.topk_weights[route]) * load(shape.row_dtype, row.data() + 2 * h));
    }
    for (const double size : sizes) bounds.push_back(relative * size);
  }
  return bounds;
}

TEST(WorldSizes, WithWeightsAtDispatchTheNumberOfRanksChangesOnlyTheDocumentedRoundings) {
  for (const LayoutForm& layout : {kLayoutForms[0], kLayoutForms[2], kLayoutForms[4]}) {
    for (const reference::DType output : kSumTypes) {
      const reference::Shape one = shape_of(1, layout, output);
      const std::vector<double> bounds = rounding_bounds(one, all_tokens(one));
      const std::vector<std::byte> expected = sums(case_of(1, layout, output));
      for (const int num_ranks : kWorldSizes) {
        if (kThreadSanitizer && num_ranks > 8) continue;
        const std::vector<std::byte> got = sums(case_of(num_ranks, layout, output));
        const auto width = static_cast<size_t>(reference::dtype_bytes(output));
        ASSERT_EQ(got.size(), bounds.size() * width);
        ASSERT_EQ(expected.size(), bounds.size() * width);
        for (size_t i = 0; i < bounds.size(); ++i) {
          const double difference = static_cast<double>(load(output, got.data() + i * width)) -
                                    static_cast<double>(load(output, expected.data() + i * width));
          ASSERT_LE(std::fabs(difference), bounds[i]) << num_ranks << " ranks, element " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
