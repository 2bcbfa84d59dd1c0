// The check of `moeway run` must pass what is right and name whatever is wrong: every kind of damage is done here once.

#include "cli/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <tuple>

#include "cli/experts.h"
#include "cli/numbers.h"
#include "cli/router.h"
#include "cli/run_summary.h"

namespace moeway::cli {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 3, kRank = 1;
constexpr int64_t kRound = 5;

// A rank after a round that went well, as a plain loop over the routing delivers it.
class Delivered {
 public:
  explicit Delivered(Layout layout, DType dtype = kBf16, Scales scales = kScalesNone) {
    RouterOptions router;
    router.num_ranks = kRanks;
    router.num_experts = 7;
    router.topk = 3;
    router.tokens = 9;
    router.rounds = 6;
    router.ragged = true;
    routes_ = skewed_routes(router);
    config_.num_experts = 7;
    config_.topk = 3;
    config_.hidden = 130;
    config_.max_tokens = 9;
    config_.layout = layout;
    config_.dispatch_dtype = dtype;
    config_.scales = scales;
    config_.alignment = layout == kExpertPacked ? 4 : 1;
    config_.distinct_experts = 1;
    sizes_.first_local_expert = 3;
    sizes_.num_local_experts = 2;  // Of 3, 2, 2.
    sizes_.expert_capacity = kRanks * 9;
    sizes_.max_rows = layout == kTokenMajor ? kRanks * 9 : 64;
    sizes_.row_bytes = 130 * moeway_dtype_bytes(dtype);
    sizes_.num_scales = scales == kScalesNone ? 0 : 2;
    pattern_ = std::make_unique<Pattern>(1, config_, sizes_);
    buffers = std::make_unique<Buffers>(config_, sizes_, *pattern_);
    if (layout == kTokenMajor)
      deliver_tokens();
    else
      deliver_rows();
    deliver_sums();
  }

  Findings check() {
    Check check(routes_, *pattern_, *buffers, kRank, kRanks, [] {});
    check.round(kRound, true);
    rows_checked = check.rows_checked();
    return check.findings();
  }
  std::string first_finding() {
    const Findings findings = check();
    return findings.count() == 0 ? "nothing" : mismatch_text(findings.first().front());
  }
  int64_t local(int32_t expert) const { return expert == 3 ? 0 : expert == 4 ? 1 : -1; }
  const Batch& batch(int rank) const { return routes_.batch(kRound, rank); }

  std::unique_ptr<Buffers> buffers;
  int64_t rows_checked = 0;

 private:
  void put(int64_t row, int rank, int64_t token) {
    pattern_->fill_row(kRound, rank, token, buffers->x.data() + row * sizes_.row_bytes);
    if (buffers->scales_bytes > 0)
      pattern_->fill_scales(kRound, rank, token, buffers->scales.data() + row * buffers->scales_bytes);
  }
  void deliver_rows() {
    int64_t row = 0;
    for (int32_t expert = 3; expert < 5; ++expert) {
      if (config_.layout == kExpertPadded) row = (expert - 3) * sizes_.expert_capacity;
      if (config_.layout == kExpertPacked) row = (row + 3) / 4 * 4;
      buffers->first_row.as<int64_t>()[expert - 3] = row;
      int32_t count = 0;
      for (int rank = 0; rank < kRanks; ++rank) {
        for (size_t route = 0; route < batch(rank).experts.size(); ++route) {
          if (batch(rank).experts[route] != expert) continue;
          const int32_t source[3] = {rank, static_cast<int32_t>(route / 3), static_cast<int32_t>(route % 3)};
          put(row, rank, source[1]);
          std::memcpy(buffers->row_source.as<int32_t>() + 3 * row, source, sizeof(source));
          ++row;
          ++count;
        }
      }
      buffers->num_rows.as<int32_t>()[expert - 3] = count;
    }
  }
  void deliver_tokens() {
    for (int64_t local = 0; local < 2; ++local) buffers->num_rows.as<int32_t>()[local] = 0;
    for (int64_t i = 0; i < kRanks * 9 * 3; ++i) {
      buffers->topk_idx.as<int32_t>()[i] = -1;
      buffers->topk_weights.as<float>()[i] = 0;
    }
    for (int rank = 0; rank < kRanks; ++rank) {
      for (size_t route = 0; route < batch(rank).experts.size(); ++route) {
        const int64_t mine = local(batch(rank).experts[route]);
        if (mine < 0) continue;
        const int64_t row = rank * 9 + static_cast<int64_t>(route) / 3;
        put(row, rank, static_cast<int64_t>(route) / 3);
        buffers->topk_idx.as<int32_t>()[rank * 27 + static_cast<int64_t>(route)] = static_cast<int32_t>(mine);
        buffers->topk_weights.as<float>()[rank * 27 + static_cast<int64_t>(route)] = batch(rank).weights[route];
        ++buffers->num_rows.as<int32_t>()[mine];
      }
    }
  }
  void deliver_sums() {
    SumOracle oracle(config_, kRanks);
    std::vector<std::byte> row(static_cast<size_t>(sizes_.row_bytes)), scales(64);
    std::vector<float> values(130);
    for (int64_t t = 0; t < batch(kRank).num_tokens; ++t) {
      pattern_->fill_row(kRound, kRank, t, row.data());
      pattern_->fill_scales(kRound, kRank, t, scales.data());
      pattern_->values(row.data(), scales.data(), values.data());
      oracle.sum(values.data(), &batch(kRank).experts[static_cast<size_t>(3 * t)],
                 &batch(kRank).weights[static_cast<size_t>(3 * t)], buffers->sums.data() + t * buffers->sum_bytes);
    }
  }

  Routes routes_;
  AllToAllConfig config_;
  AllToAllSizes sizes_{};
  std::unique_ptr<Pattern> pattern_;
};

void flip(const GuardedBytes& bytes, int64_t offset) { bytes.data()[offset] ^= std::byte{1}; }

TEST(Check, PassesWhatIsRight) {
  for (const Layout layout : {kExpertPadded, kExpertPacked, kTokenMajor}) {
    Delivered delivered(layout, kF8E4M3, kScalesF32);
    EXPECT_EQ(delivered.first_finding(), "nothing");
    EXPECT_GT(delivered.rows_checked, 5);
    EXPECT_GT(delivered.batch(kRank).num_tokens, 1);
  }
}

TEST(Check, NamesAWrongElementOfARow) {
  Delivered delivered(kExpertPadded);
  flip(delivered.buffers->x, 27 * 260 + 2 * 77);  // Second expert, first row.
  EXPECT_THAT(delivered.first_finding(),
              testing::MatchesRegex("rank 1, round 6: row 27 of expert 4 \\(from rank 0, token ., k .\\), element 77: "
                                    "expected .* \\(0x....\\), got .* \\(0x....\\)"));
}

TEST(Check, NamesAWrongScale) {
  Delivered delivered(kExpertPacked, kF8E4M3, kScalesUe8m0);
  flip(delivered.buffers->scales, 1);
  EXPECT_THAT(delivered.first_finding(), HasSubstr("scale of row 0 of expert 3"));
  EXPECT_THAT(delivered.first_finding(), HasSubstr("element 1"));
}

TEST(Check, NamesAWrongCountPlaceOrSource) {
  Delivered count(kExpertPadded);
  ++count.buffers->num_rows.as<int32_t>()[1];
  EXPECT_THAT(count.first_finding(), HasSubstr("count of expert 4: expected "));
  Delivered place(kExpertPacked);
  ++place.buffers->first_row.as<int64_t>()[1];
  EXPECT_THAT(place.first_finding(), HasSubstr("first_row of expert 4"));
  Delivered source(kExpertPadded);
  ++source.buffers->row_source.as<int32_t>()[2];
  EXPECT_THAT(source.first_finding(), HasSubstr("source of row 0 of expert 3"));
}

TEST(Check, NamesRowsInTheWrongOrder) {
  Delivered delivered(kExpertPadded);
  ASSERT_GE(delivered.buffers->num_rows.as<int32_t>()[0], 2);
  std::vector<std::byte> first(260);
  std::byte* x = delivered.buffers->x.data();
  std::memcpy(first.data(), x, 260);
  std::memcpy(x, x + 260, 260);
  std::memcpy(x + 260, first.data(), 260);
  EXPECT_EQ(delivered.check().count(), 2);
}

TEST(Check, NamesAStrayWrite) {
  Delivered behind(kExpertPadded);
  flip(behind.buffers->x, behind.buffers->num_rows.as<int32_t>()[0] * 260);
  EXPECT_THAT(behind.first_finding(), HasSubstr("untouched of row"));
  Delivered far(kExpertPacked);
  flip(far.buffers->row_source, 60 * 12);
  EXPECT_THAT(far.first_finding(), HasSubstr("untouched of row 60"));
  Delivered outside(kTokenMajor);
  flip(outside.buffers->x, outside.buffers->x.bytes());
  EXPECT_THAT(outside.first_finding(), HasSubstr("guard: expected nothing behind the end of x"));
  outside.buffers->x.data()[outside.buffers->x.bytes()] = std::byte{0xa5};
  flip(outside.buffers->sums, outside.batch(kRank).num_tokens * 260);
  EXPECT_THAT(outside.first_finding(), HasSubstr("nothing behind the sum of the last token"));
}

TEST(Check, NamesWrongLocalRoutesOfATokenMajorRow) {
  Delivered expert(kTokenMajor);
  int32_t* ids = expert.buffers->topk_idx.as<int32_t>();
  int64_t at = 0;
  while (ids[at] < 0) ++at;
  ids[at] = 1 - ids[at];
  EXPECT_THAT(expert.first_finding(), HasSubstr("topk_idx of row"));
  Delivered weight(kTokenMajor);
  flip(weight.buffers->topk_weights, 4 * at);
  EXPECT_THAT(weight.first_finding(), HasSubstr("topk_weights of row"));
}

TEST(Check, NamesAWrongSum) {
  Delivered delivered(kExpertPadded);
  flip(delivered.buffers->sums, 260 + 2 * 129);
  EXPECT_THAT(delivered.first_finding(), HasSubstr("rank 1, round 6: sum of token 1, element 129: expected "));
}

TEST(Check, CountsAllAndKeepsTheFirstFew) {
  Delivered delivered(kExpertPadded);
  delivered.buffers->x.poison();
  const Findings findings = delivered.check();
  EXPECT_EQ(findings.count(), delivered.rows_checked);
  EXPECT_EQ(findings.first().size(), std::min(static_cast<size_t>(delivered.rows_checked), Findings::kKept));
}

// Sums worked out by hand. Experts 0 to 3 multiply by 1/16, 1/8, 1/4, 1/2; two ranks own two each.
TEST(SumOracle, FollowsTheDocumentedOrder) {
  AllToAllConfig config;
  config.num_experts = 4;
  config.topk = 3;
  config.hidden = 1;
  config.output_dtype = kBf16;
  const float value = 16;
  const int32_t experts[3] = {3, 0, 2};  // Rows 8, 1 and 4.
  const float weights[3] = {1.0f, 0x1.01p-1f, 0x1p-7f};
  std::byte sum[2];
  // Rank 0: 0x1.01p-1, to bf16: a tie, to even: 0.5. Rank 1: 8 + 2^-5, to bf16: 8. Together 8.5.
  SumOracle(config, 2).sum(&value, experts, weights, sum);
  EXPECT_EQ(element_text(kBf16, sum), "8.5 (0x4108)");
  // At the owner, in k order: 8 + 0x1.01p-1 + 2^-5 = 8.533203125, to bf16 once: 8.5625 is 0x4109, a tie lies at 8.53125.
  config.weights = kWeightsAtCombine;
  SumOracle(config, 2).sum(&value, experts, weights, sum);
  EXPECT_EQ(element_text(kBf16, sum), "8.5625 (0x4109)");
}

TEST(SumOracle, GivesZeroToATokenWithoutRoutes) {
  AllToAllConfig config;
  config.num_experts = 4;
  config.topk = 2;
  config.hidden = 1;
  const float value = -3, weights[2] = {std::nanf(""), std::nanf("")};
  const int32_t experts[2] = {-1, -1};
  std::byte sum[2] = {std::byte{1}, std::byte{1}};
  SumOracle(config, 2).sum(&value, experts, weights, sum);
  EXPECT_EQ(element_text(kBf16, sum), "0 (0x0000)");
}

// What the whole check rests on: rows of experts are never rounded, whatever the types.
TEST(Pattern, RowsOfExpertsAreExactInEveryRowType) {
  const std::tuple<DType, Scales, Quantise> kinds[] = {
      {kBf16, kScalesNone, kQuantiseNone},         {kF16, kScalesNone, kQuantiseNone},
      {kF32, kScalesNone, kQuantiseNone},          {kF8E4M3, kScalesF32, kQuantiseNone},
      {kF8E4M3, kScalesUe8m0, kQuantiseNone},      {kF8E4M3, kScalesF32, kQuantiseLargest},
      {kF8E4M3, kScalesUe8m0, kQuantisePowerOfTwo}};
  for (const auto& [dtype, scales, quantise] : kinds) {
    AllToAllConfig config;
    config.hidden = 1280;
    config.dispatch_dtype = dtype;
    config.scales = scales;
    config.quantise = quantise;
    AllToAllSizes sizes{};
    sizes.row_bytes = 1280 * moeway_dtype_bytes(dtype);
    sizes.num_scales = scales == kScalesNone ? 0 : 10;
    const Pattern pattern(3, config, sizes);
    std::vector<std::byte> row(static_cast<size_t>(sizes.row_bytes)), row_scales(40);
    std::vector<float> values(1280);
    for (int64_t token = 0; token < 4; ++token) {
      pattern.fill_row(0, 0, token, row.data());
      pattern.fill_scales(0, 0, token, row_scales.data());
      pattern.values(row.data(), row_scales.data(), values.data());
      for (int expert = 0; expert < 12; ++expert) {
        for (const float value : values) {
          const float product = value * expert_factor(expert);
          ASSERT_TRUE(std::isfinite(product));
          ASSERT_EQ(bf16_to_float(float_to_bf16(product)), product);
          ASSERT_EQ(f16_to_float(float_to_f16(product)), product);
        }
      }
    }
  }
}

TEST(Pattern, DependsOnRoundRankTokenAndSeed) {
  AllToAllConfig config;
  config.hidden = 64;
  AllToAllSizes sizes{};
  sizes.row_bytes = 128;
  const auto row = [&](uint64_t seed, int64_t round, int rank, int64_t token) {
    std::vector<std::byte> bytes(128);
    Pattern(seed, config, sizes).fill_row(round, rank, token, bytes.data());
    return bytes;
  };
  EXPECT_EQ(row(1, 2, 3, 4), row(1, 2, 3, 4));
  EXPECT_NE(row(1, 2, 3, 4), row(0, 2, 3, 4));
  EXPECT_NE(row(1, 2, 3, 4), row(1, 0, 3, 4));
  EXPECT_NE(row(1, 2, 3, 4), row(1, 2, 0, 4));
  EXPECT_NE(row(1, 2, 3, 4), row(1, 2, 3, 0));
}

TEST(CliNumbers, RoundToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.00390625f), 0x3f80);  // Halfway between 1 and the next: to even.
  EXPECT_EQ(float_to_bf16(1.01171875f), 0x3f82);  // Halfway, the other way round.
  EXPECT_EQ(float_to_bf16(3.4e38f), 0x7f80);      // Past the largest: infinity.
  EXPECT_EQ(float_to_f16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(0x1p-24f), 0x0001);  // The smallest subnormal number.
  EXPECT_EQ(float_to_f16(0x1p-25f), 0x0000);  // Half of it: to even.
  EXPECT_EQ(float_to_f16(-0x1.8p-25f), 0x8001);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    if (!std::isnan(f16_to_float(half))) {
      ASSERT_EQ(float_to_f16(f16_to_float(half)), half);
    }
    if (!std::isnan(bf16_to_float(half))) {
      ASSERT_EQ(float_to_bf16(bf16_to_float(half)), half);
    }
  }
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(0xb8), -1.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)));
  EXPECT_EQ(ue8m0_to_float(130), 8.0f);
}

}  // namespace
}  // namespace moeway::cli
