// Sizes and owners, which anybody can ask for without a job.
#include <gtest/gtest.h>

#include <moeway/moeway.h>

#include "reference/shape.h"

namespace moeway {
namespace {

AllToAllConfig large_config() {
  AllToAllConfig config;
  config.num_experts = 448;
  config.topk = 8;
  config.hidden = 5120;
  config.max_tokens = 2048;
  config.distinct_experts = 1;
  return config;
}

TEST(Sizes, AreRightBeyond32Bits) {
  const AllToAllConfig config = large_config();
  for (int rank = 0; rank < 16; ++rank) {
    const Result<AllToAllSizes> sizes = all_to_all_sizes(config, rank, 16);
    ASSERT_TRUE(sizes.ok()) << sizes.status().to_string();
    EXPECT_EQ(sizes.value().num_local_experts, 28);
    EXPECT_EQ(sizes.value().first_local_expert, 28 * rank);
    EXPECT_EQ(sizes.value().expert_capacity, 16 * 2048);
    EXPECT_EQ(sizes.value().max_rows, 28 * 16 * 2048);
    EXPECT_EQ(sizes.value().row_bytes, 2 * 5120);
    // At least two epochs of a slot for every token of every rank, and no more than a few times that.
    const int64_t slots = int64_t{2} * 16 * 2048 * 10240;
    EXPECT_GE(sizes.value().heap_bytes, slots);
    EXPECT_LE(sizes.value().heap_bytes, 4 * slots);
    EXPECT_GT(sizes.value().workspace_bytes, 0);
  }
}

TEST(Sizes, CrossTwoToThe32AndThe31stElementWithoutWrapping) {
  AllToAllConfig config = large_config();
  config.max_tokens = 16384;
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config, 15, 16);
  ASSERT_TRUE(sizes.ok()) << sizes.status().to_string();
  EXPECT_GT(sizes.value().heap_bytes, int64_t{1} << 32);
  EXPECT_EQ(sizes.value().max_rows * config.hidden, int64_t{28} * 16 * 16384 * 5120);  // 37.6 G elements.
  config.distinct_experts = 0;
  EXPECT_EQ(all_to_all_sizes(config, 15, 16).value().expert_capacity, int64_t{16} * 16384 * 8);
}

TEST(Sizes, GrowWithEveryDimension) {
  const AllToAllConfig base = large_config();
  const int64_t bytes = all_to_all_sizes(base, 0, 16).value().heap_bytes;
  AllToAllConfig config = base;
  config.hidden *= 2;
  EXPECT_GT(all_to_all_sizes(config, 0, 16).value().heap_bytes, bytes);
  config = base;
  config.max_tokens *= 2;
  EXPECT_GT(all_to_all_sizes(config, 0, 16).value().heap_bytes, bytes);
  EXPECT_GT(all_to_all_sizes(base, 0, 32).value().heap_bytes, bytes);
}

TEST(Sizes, WhatLeaves64BitsIsRefusedWithItsNumbers) {
  AllToAllConfig config = large_config();
  config.hidden = int64_t{1} << 40;
  config.max_tokens = int64_t{1} << 22;
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config, 0, 16);
  ASSERT_EQ(sizes.status().code(), MOEWAY_INVALID_ARGUMENT) << sizes.status().to_string();
  EXPECT_NE(sizes.status().message().find("1099511627776"), std::string::npos) << sizes.status().message();
}

TEST(Sizes, TooManyRowsAreRefusedWithTheLargestMaxTokens) {
  AllToAllConfig config = large_config();
  config.max_tokens = int64_t{1} << 30;
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config, 0, 16);
  ASSERT_EQ(sizes.status().code(), MOEWAY_INVALID_ARGUMENT) << sizes.status().to_string();
  EXPECT_NE(sizes.status().message().find("1073741824"), std::string::npos) << sizes.status().message();
  EXPECT_NE(sizes.status().message().find("max_tokens"), std::string::npos) << sizes.status().message();
}

TEST(Sizes, RankAndNumberOfRanksAreChecked) {
  const AllToAllConfig config = large_config();
  EXPECT_EQ(all_to_all_sizes(config, 0, 0).status().code(), MOEWAY_INVALID_ARGUMENT);
  EXPECT_EQ(all_to_all_sizes(config, 4, 4).status().code(), MOEWAY_INVALID_ARGUMENT);
  EXPECT_EQ(all_to_all_sizes(config, -1, 4).status().code(), MOEWAY_INVALID_ARGUMENT);
  AllToAllSizes sizes{};
  sizes.struct_size = sizeof(sizes);
  EXPECT_EQ(moeway_all_to_all_get_sizes(nullptr, 0, 1, &sizes), MOEWAY_INVALID_ARGUMENT);
  EXPECT_EQ(moeway_all_to_all_get_sizes(&config, 0, 1, nullptr), MOEWAY_INVALID_ARGUMENT);
}

TEST(Sizes, PackedRowsHoldTheWorstCaseWithPadding) {
  AllToAllConfig config;
  config.num_experts = 6;
  config.topk = 3;
  config.hidden = 4;
  config.max_tokens = 5;
  config.layout = kExpertPacked;
  config.alignment = 8;
  // 3 ranks, 2 experts each. All 15 tokens with all 3 routes to one expert, and a row to the other one: the last row is
  // below 48 + 8.
  const Result<AllToAllSizes> sizes = all_to_all_sizes(config, 0, 3);
  ASSERT_TRUE(sizes.ok());
  EXPECT_GE(sizes.value().max_rows, 48);
  EXPECT_LE(sizes.value().max_rows, 45 + 2 * 8);
}

TEST(Owners, AreTheReferences) {
  for (int ranks = 1; ranks <= 20; ++ranks) {
    for (int experts = 1; experts <= 70; ++experts) {
      reference::Shape shape;
      shape.num_ranks = ranks;
      shape.num_experts = experts;
      for (int rank = 0; rank < ranks; ++rank) {
        ASSERT_EQ(num_local_experts(rank, experts, ranks), shape.num_local_experts(rank));
        ASSERT_EQ(first_expert(rank, experts, ranks), shape.first_expert(rank));
      }
      for (int expert = 0; expert < experts; ++expert)
        ASSERT_EQ(expert_owner(expert, experts, ranks), shape.owner(expert))
            << expert << " " << experts << " " << ranks;
    }
  }
}

TEST(Owners, OutOfRangeIsMinusOne) {
  EXPECT_EQ(expert_owner(-1, 8, 2), -1);
  EXPECT_EQ(expert_owner(8, 8, 2), -1);
  EXPECT_EQ(expert_owner(0, 0, 2), -1);
  EXPECT_EQ(expert_owner(0, 8, 0), -1);
  EXPECT_EQ(first_expert(2, 8, 2), -1);
  EXPECT_EQ(first_expert(-1, 8, 2), -1);
  EXPECT_EQ(num_local_experts(2, 8, 2), -1);
  EXPECT_EQ(num_local_experts(0, 8, -1), -1);
}

}  // namespace
}  // namespace moeway
