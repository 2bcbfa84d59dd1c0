// Creation's checks: what is refused, and in which words; and the sizes that follow from a config.
#include "core/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace moeway::core {
namespace {

using testing::HasSubstr;

moeway_all_to_all_config valid() {
  moeway_all_to_all_config config;
  moeway_all_to_all_config_init(&config);
  config.num_experts = 60;
  config.topk = 4;
  config.hidden = 2048;
  config.max_tokens = 128;
  return config;
}

struct Refusal {
  const char* name;
  std::function<void(moeway_all_to_all_config&)> spoil;
  std::string words;  // The argument, its value and what was expected.
};

TEST(Plan, RefusesWhatCannotBeWithArgumentValueAndExpectation) {
  using Config = moeway_all_to_all_config;
  const Refusal refusals[] = {
      {"size", [](Config& c) { c.struct_size = 8; }, "config.struct_size is 8, expected"},
      {"no experts", [](Config& c) { c.num_experts = 0; }, "num_experts is 0, expected at least 1"},
      {"topk 0", [](Config& c) { c.topk = 0; }, "topk is 0, expected 1 to num_experts = 60"},
      {"topk above E", [](Config& c) { c.topk = 61; }, "topk is 61, expected 1 to num_experts = 60"},
      {"hidden", [](Config& c) { c.hidden = 0; }, "hidden is 0, expected 1 to"},
      {"a negative bound", [](Config& c) { c.max_recv_tokens = -1; }, "max_recv_tokens is -1, expected at least 0"},
      {"no such overflow", [](Config& c) { c.overflow = static_cast<moeway_overflow>(2); },
       "overflow is 2, which is no such value (0 to 1)"},
      {"a bound between two alignments",
       [](Config& c) {
         c.layout = MOEWAY_EXPERT_PACKED;
         c.alignment = 16;
         c.max_recv_tokens = 40;
       },
       "max_recv_tokens is 40 with layout expert_packed, expected a multiple of alignment = 16"},
      {"a bound of tokens",
       [](Config& c) {
         c.layout = MOEWAY_TOKEN_MAJOR;
         c.max_recv_tokens = 128;
       },
       "max_recv_tokens is 128 with layout token_major, expected 0 or at least ranks * max_tokens"},
      {"tokens", [](Config& c) { c.max_tokens = 0; }, "max_tokens is 0, expected 1 to"},
      {"tokens above 32 bits", [](Config& c) { c.max_tokens = int64_t{1} << 31; },
       "max_tokens is 2147483648, expected 1 to 2147483647"},
      {"elements above 32 bits", [](Config& c) { c.hidden = int64_t{1} << 31; },
       "hidden is 2147483648, expected 1 to 2147483647"},
      {"a row too long for a slot",
       [](Config& c) {
         c.dispatch_dtype = MOEWAY_BYTES;
         c.token_bytes = (int64_t{1} << 34) + 1;
       },
       "token_bytes is 17179869185, expected 1 to 17179869184"},
      {"a route that no header holds",
       [](Config& c) {
         c.num_experts = 1 << 18;
         c.topk = 1 << 10;
         c.max_tokens = 1 << 17;
       },
       "need 52 bits in a header, expected at most 48"},
      {"rows above 32 bits", [](Config& c) { c.max_tokens = 1 << 27; }, "expected at most 2147483647"},
      {"too many bytes",
       [](Config& c) {
         c.max_tokens = 1 << 25;
         c.dispatch_dtype = MOEWAY_BYTES;
         c.token_bytes = int64_t{1} << 34;
       },
       "need more than 2^62 bytes"},
      {"dispatch dtype", [](Config& c) { c.dispatch_dtype = MOEWAY_I32; },
       "dispatch_dtype is i32, expected bf16, f16, f32, f8_e4m3 or bytes"},
      {"row dtype", [](Config& c) { c.row_dtype = MOEWAY_F8_E4M3; }, "row_dtype is f8_e4m3, expected bf16, f16 or f32"},
      {"output dtype", [](Config& c) { c.output_dtype = MOEWAY_BYTES; },
       "output_dtype is bytes, expected bf16, f16 or f32"},
      {"bytes without size", [](Config& c) { c.dispatch_dtype = MOEWAY_BYTES; }, "token_bytes is 0, expected 1 to"},
      {"size without bytes", [](Config& c) { c.token_bytes = 7; },
       "token_bytes (dispatch_dtype is not bytes) is 7, expected 0"},
      {"scales without size", [](Config& c) { c.scales = MOEWAY_SCALES_BYTES; }, "scale_bytes is 0, expected 1 to"},
      {"size without scales", [](Config& c) { c.scale_bytes = 9; },
       "scale_bytes (scales are not bytes) is 9, expected 0"},
      {"scales", [](Config& c) { c.scales = static_cast<moeway_scales>(9); }, "scales is 9, which is no such value"},
      {"layout", [](Config& c) { c.layout = static_cast<moeway_layout>(-1); }, "layout is -1, which is no such value"},
      {"alignment", [](Config& c) { c.alignment = 0; }, "alignment is 0, expected 1 to"},
      {"alignment of padded", [](Config& c) { c.alignment = 16; },
       "alignment is 16 with layout expert_padded, expected 1"},
      {"token_major weights",
       [](Config& c) {
         c.layout = MOEWAY_TOKEN_MAJOR;
         c.weights = MOEWAY_WEIGHTS_AT_COMBINE;
       },
       "weights is at_combine with layout token_major, expected at_dispatch"},
      {"distinct", [](Config& c) { c.distinct_experts = 2; }, "distinct_experts is 2, expected 0 to 1"},
      {"replicas", [](Config& c) { c.replicas = 3; }, "replicas is 3, expected a divisor of the number of ranks, 8"},
      {"replicas of more", [](Config& c) { c.replicas = 16; }, "replicas is 16, expected a divisor of"},
      {"negative replicas", [](Config& c) { c.replicas = -2; }, "replicas is -2, expected a divisor of"},
      {"warps", [](Config& c) { c.num_warps = 257; }, "num_warps is 257, expected 1 to 256"},
      {"multiprocessors", [](Config& c) { c.num_sms = -1; }, "num_sms is -1, expected 0 to"},
      {"timeout", [](Config& c) { c.timeout_ms = 0; }, "timeout_ms is 0, expected at least 1"},
  };
  for (const Refusal& refusal : refusals) {
    moeway_all_to_all_config config = valid();
    refusal.spoil(config);
    const Result<Plan> plan = make_plan(config, 0, 8);
    ASSERT_FALSE(plan.ok()) << refusal.name;
    EXPECT_EQ(plan.status().code(), MOEWAY_INVALID_ARGUMENT) << refusal.name;
    EXPECT_THAT(plan.status().message(), HasSubstr(refusal.words)) << refusal.name;
  }
  EXPECT_TRUE(make_plan(valid(), 0, 8).ok());
  EXPECT_FALSE(make_plan(valid(), 8, 8).ok());
  EXPECT_FALSE(make_plan(valid(), 0, 0).ok());
}

TEST(Plan, CountsBytesPastThirtyTwoBits) {
  moeway_all_to_all_config config = valid();
  config.num_experts = 448;
  config.topk = 8;
  config.hidden = 5120;
  config.max_tokens = 2048;
  config.distinct_experts = 1;
  const moeway_all_to_all_sizes sizes = make_plan(config, 15, 16).value().sizes;
  EXPECT_EQ(sizes.num_local_experts, 28);
  EXPECT_EQ(sizes.expert_capacity, 16 * 2048);
  EXPECT_EQ(sizes.max_rows * sizes.row_bytes, int64_t{28} * 16 * 2048 * 10240);  // 8.75 GiB of output.
  EXPECT_GT(sizes.heap_bytes, int64_t{2} * 16 * 2048 * 10240);
}

TEST(Plan, TheHeapGrowsWithTokensNotWithExperts) {
  moeway_all_to_all_config config = valid();
  const int64_t few = make_plan(config, 0, 8).value().sizes.heap_bytes;
  config.num_experts = 240;
  const int64_t many = make_plan(config, 0, 8).value().sizes.heap_bytes;
  EXPECT_LT(many - few, few / 100);  // Only counts are per expert.
}

TEST(Plan, RepeatedExpertsNeedRoomUnlessTheCallerPromisesNone) {
  moeway_all_to_all_config config = valid();
  EXPECT_EQ(make_plan(config, 0, 8).value().sizes.expert_capacity, 8 * 128 * 4);
  config.distinct_experts = 1;
  EXPECT_EQ(make_plan(config, 0, 8).value().sizes.expert_capacity, 8 * 128);
  config.layout = MOEWAY_EXPERT_PACKED;
  config.alignment = 128;
  EXPECT_EQ(make_plan(config, 0, 8).value().sizes.max_rows, 8 * 128 * 4 + 8 * 127);
}

TEST(Plan, ARankWithoutExpertsNeedsNoRows) {
  moeway_all_to_all_config config = valid();
  config.num_experts = config.topk = 3;
  for (const moeway_layout layout : {MOEWAY_EXPERT_PADDED, MOEWAY_EXPERT_PACKED}) {
    config.layout = layout;
    const moeway_all_to_all_sizes sizes = make_plan(config, 7, 8).value().sizes;
    EXPECT_EQ(sizes.num_local_experts, 0);
    EXPECT_EQ(sizes.max_rows, 0);
  }
}

}  // namespace
}  // namespace moeway::core
