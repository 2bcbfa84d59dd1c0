// Creation: what ranks must agree on, and what is refused everywhere because one rank asked for it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>

#include "multi_rank/check.h"

namespace moeway::multi_rank {
namespace {

using Change = std::function<void(AllToAllConfig&)>;

AllToAllConfig good_config() {
  AllToAllConfig config;
  config.num_experts = 8;
  config.topk = 2;
  config.hidden = 32;
  config.max_tokens = 16;
  return config;
}

// What every rank of a job heard when one of them had another config; each then made an object with the right one.
std::vector<std::string> hear(As as, int odd_rank, const Change& change) {
  const RanksResult result = run_ranks({4, as, std::chrono::seconds(60), true}, [&](Rank& rank) {
    AllToAllConfig config = good_config();
    if (rank.rank() == odd_rank || odd_rank < 0) change(config);
    const auto start = std::chrono::steady_clock::now();
    const Result<AllToAll> made = AllToAll::create(rank.communicator(), config);
    rank.expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(5), "took 5 s or longer");
    if (rank.expect(!made.ok(), "creation succeeded")) rank.give(made.status().to_string());
    const Result<AllToAll> again = AllToAll::create(rank.communicator(), good_config());
    rank.expect_ok(again.status(), "creation after the refused one");
  });
  EXPECT_EQ(result.failures, "");
  std::vector<std::string> heard;
  for (int r = 0; r < 4; ++r) heard.push_back(result.text(r));
  return heard;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void expect_all_hear(const Change& change, int odd_rank, const std::string& code,
                     const std::vector<std::string>& parts) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    if (kSanitizer && as == As::kProcesses) continue;
    const std::vector<std::string> heard = hear(as, odd_rank, change);
    for (const std::string& text : heard) {
      EXPECT_EQ(text, heard[0]) << "not the same on all ranks";
      EXPECT_TRUE(contains(text, code)) << text;
      for (const std::string& part : parts) EXPECT_TRUE(contains(text, part)) << "no '" << part << "' in: " << text;
    }
  }
}

struct Difference {
  const char* field;
  Change change;
  std::vector<std::string> values;  // Of rank 0 and of the odd rank.
};

const std::vector<Difference>& differences() {
  static const std::vector<Difference> kDifferences = {
      {"num_experts", [](AllToAllConfig& c) { c.num_experts = 9; }, {"8", "9"}},
      {"topk", [](AllToAllConfig& c) { c.topk = 3; }, {"2", "3"}},
      {"hidden", [](AllToAllConfig& c) { c.hidden = 33; }, {"32", "33"}},
      {"max_tokens", [](AllToAllConfig& c) { c.max_tokens = 64; }, {"16", "64"}},
      {"dispatch_dtype", [](AllToAllConfig& c) { c.dispatch_dtype = kF16; }, {"bf16", "f16"}},
      {"row_dtype", [](AllToAllConfig& c) { c.row_dtype = kF32; }, {"bf16", "f32"}},
      {"output_dtype", [](AllToAllConfig& c) { c.output_dtype = kF32; }, {"bf16", "f32"}},
      {"layout", [](AllToAllConfig& c) { c.layout = kTokenMajor; }, {"expert_padded", "token_major"}},
      {"weights", [](AllToAllConfig& c) { c.weights = kWeightsAtCombine; }, {"dispatch", "combine"}},
      {"distinct_experts", [](AllToAllConfig& c) { c.distinct_experts = 1; }, {"0", "1"}},
      {"replicas", [](AllToAllConfig& c) { c.replicas = 2; }, {"1", "2"}},
  };
  return kDifferences;
}

TEST(Creation, NamesTheFieldInWhichOneRankDiffers) {
  for (const Difference& difference : differences()) {
    SCOPED_TRACE(difference.field);
    std::vector<std::string> parts = difference.values;
    parts.insert(parts.end(), {difference.field, "rank 0", "rank 2"});
    expect_all_hear(difference.change, 2, "MISMATCH", parts);
  }
}

TEST(Creation, NamesTheFieldInWhichRankZeroDiffersFromTheOthers) {
  expect_all_hear([](AllToAllConfig& c) { c.hidden = 48; }, 0, "MISMATCH", {"hidden", "32", "48", "rank 0"});
}

// Fields that come in pairs: scales and tokens as bytes need their sizes.
TEST(Creation, NamesADifferenceOfOpaqueSizes) {
  for (const As as : {As::kThreads}) {
    const RanksResult result = run_ranks({3, as, std::chrono::seconds(60), true}, [&](Rank& rank) {
      AllToAllConfig config = good_config();
      config.dispatch_dtype = kBytes;
      config.token_bytes = rank.rank() == 1 ? 100 : 90;
      config.scales = kScalesBytes;
      config.scale_bytes = 5;
      rank.expect_error(AllToAll::create(rank.communicator(), config).status(), MOEWAY_MISMATCH,
                        {"token_bytes", "100", "90"}, "token_bytes");
      config.token_bytes = 90;
      config.scale_bytes = rank.rank() == 2 ? 6 : 7;
      rank.expect_error(AllToAll::create(rank.communicator(), config).status(), MOEWAY_MISMATCH,
                        {"scale_bytes", "6", "7"}, "scale_bytes");
      config.scale_bytes = 6;
      config.layout = kExpertPacked;
      config.alignment = rank.rank() == 2 ? 16 : 128;
      rank.expect_error(AllToAll::create(rank.communicator(), config).status(), MOEWAY_MISMATCH,
                        {"alignment", "16", "128"}, "alignment");
    });
    EXPECT_EQ(result.failures, "");
  }
}

TEST(Creation, LocalChoicesMayDiffer) {
  expect_runs(4, As::kThreads, [](Rank& rank) {
    AllToAllConfig config = good_config();
    config.execution = rank.rank() % 2 == 0 ? kFibers : kThreads;
    config.num_warps = 1 + rank.rank();
    config.timeout_ms = 1000 * (1 + rank.rank());
    rank.expect_ok(AllToAll::create(rank.communicator(), config).status(), "create");
  });
}

struct Refusal {
  const char* field;
  Change change;
  std::vector<std::string> parts;  // The value and what was expected.
};

// As a caller in C or Python may give it.
template <class Enum>
Enum no_such_value() {
  constexpr int kValue = 99;
  Enum value;
  static_assert(sizeof(value) == sizeof(kValue));
  std::memcpy(&value, &kValue, sizeof(value));
  return value;
}

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> kRefusals = {
      {"num_experts", [](AllToAllConfig& c) { c.num_experts = 0; }, {"0", "1"}},
      {"num_experts", [](AllToAllConfig& c) { c.num_experts = -3; }, {"-3"}},
      {"topk", [](AllToAllConfig& c) { c.topk = 0; }, {"0", "1", "8"}},
      {"topk", [](AllToAllConfig& c) { c.topk = 9; }, {"9", "8"}},
      {"hidden", [](AllToAllConfig& c) { c.hidden = 0; }, {"0", "1"}},
      {"hidden", [](AllToAllConfig& c) { c.hidden = -32; }, {"-32"}},
      {"max_tokens", [](AllToAllConfig& c) { c.max_tokens = 0; }, {"0", "1"}},
      {"max_tokens", [](AllToAllConfig& c) { c.max_tokens = int64_t{1} << 33; }, {"8589934592"}},
      {"alignment", [](AllToAllConfig& c) { c.layout = kExpertPacked, c.alignment = 0; }, {"0", "1"}},
      {"num_warps", [](AllToAllConfig& c) { c.num_warps = 0; }, {"0", "1", "256"}},
      {"num_warps", [](AllToAllConfig& c) { c.num_warps = 257; }, {"257", "256"}},
      {"timeout_ms", [](AllToAllConfig& c) { c.timeout_ms = 0; }, {"0", "1"}},
      {"distinct_experts", [](AllToAllConfig& c) { c.distinct_experts = 2; }, {"2"}},
      {"replicas", [](AllToAllConfig& c) { c.replicas = 3; }, {"3", "divisor", "4"}},
      {"replicas", [](AllToAllConfig& c) { c.replicas = 0; }, {"0", "divisor", "4"}},
      {"dispatch_dtype", [](AllToAllConfig& c) { c.dispatch_dtype = kI32; }, {"i32", "bf16"}},
      {"row_dtype", [](AllToAllConfig& c) { c.row_dtype = kF8E4M3; }, {"f8_e4m3", "bf16"}},
      {"output_dtype", [](AllToAllConfig& c) { c.output_dtype = kBytes; }, {"bytes", "bf16"}},
      {"layout", [](AllToAllConfig& c) { c.layout = no_such_value<Layout>(); }, {"99"}},
      {"scales", [](AllToAllConfig& c) { c.scales = no_such_value<Scales>(); }, {"99"}},
      {"weights", [](AllToAllConfig& c) { c.weights = no_such_value<Weights>(); }, {"99"}},
      {"execution", [](AllToAllConfig& c) { c.execution = no_such_value<Execution>(); }, {"99"}},
      {"dispatch_dtype", [](AllToAllConfig& c) { c.dispatch_dtype = no_such_value<DType>(); }, {}},
      {"token_bytes", [](AllToAllConfig& c) { c.dispatch_dtype = kBytes; }, {"0", "1"}},
      {"token_bytes", [](AllToAllConfig& c) { c.token_bytes = 64; }, {"64", "0"}},
      {"scale_bytes", [](AllToAllConfig& c) { c.scales = kScalesBytes; }, {"0", "1"}},
      {"scale_bytes", [](AllToAllConfig& c) { c.scale_bytes = 8; }, {"8", "0"}},
      {"weights", [](AllToAllConfig& c) { c.layout = kTokenMajor, c.weights = kWeightsAtCombine; }, {"token_major"}},
      {"struct_size", [](AllToAllConfig& c) { c.struct_size = 8; }, {"8"}},
  };
  return kRefusals;
}

TEST(Creation, RefusesABadValueOnAllRanksAndNamesTheRankThatGaveIt) {
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.field);
    std::vector<std::string> parts = refusal.parts;
    parts.insert(parts.end(), {refusal.field, "rank 1"});
    expect_all_hear(refusal.change, 1, "INVALID_ARGUMENT", parts);
  }
}

TEST(Creation, RefusesABadValueThatAllRanksGive) {
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.field);
    for (const std::string& text : hear(As::kThreads, -1, refusal.change)) {
      EXPECT_TRUE(contains(text, "INVALID_ARGUMENT") && contains(text, refusal.field)) << text;
    }
  }
}

TEST(Creation, TheSizesFunctionRefusesWhatCreationRefuses) {
  for (const Refusal& refusal : refusals()) {
    AllToAllConfig config = good_config();
    refusal.change(config);
    const Result<AllToAllSizes> sizes = all_to_all_sizes(config, 0, 4);
    EXPECT_EQ(sizes.status().code(), MOEWAY_INVALID_ARGUMENT) << refusal.field;
    EXPECT_TRUE(contains(sizes.status().message(), refusal.field)) << sizes.status().to_string();
  }
}

TEST(Creation, NullPointersAreErrors) {
  EXPECT_EQ(moeway_all_to_all_create(nullptr, nullptr, nullptr), MOEWAY_INVALID_ARGUMENT);
  expect_runs(2, As::kThreads, [](Rank& rank) {
    const AllToAllConfig config = good_config();
    moeway_all_to_all* made = nullptr;
    // Before anything collective, so each rank is told by itself.
    rank.expect_error(Status::from_c(moeway_all_to_all_create(nullptr, &config, &made)), MOEWAY_INVALID_ARGUMENT,
                      {"communicator"}, "communicator null");
    rank.expect_error(Status::from_c(moeway_all_to_all_create(rank.communicator().get(), nullptr, &made)),
                      MOEWAY_INVALID_ARGUMENT, {"config"}, "config null");
    rank.expect_error(Status::from_c(moeway_all_to_all_create(rank.communicator().get(), &config, nullptr)),
                      MOEWAY_INVALID_ARGUMENT, {"all_to_all"}, "all_to_all null");
    rank.expect_ok(AllToAll::create(rank.communicator(), config).status(), "create");
  });
}

TEST(Creation, ManyObjectsCanBeMadeAndLetGo) {
  expect_runs(3, As::kProcesses, [](Rank& rank) {
    for (int i = 0; i < 20; ++i)
      if (!rank.expect_ok(AllToAll::create(rank.communicator(), good_config()).status(), "create")) return;
  });
}

}  // namespace
}  // namespace moeway::multi_rank
