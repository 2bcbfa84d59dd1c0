// Route files and the built-in router: what is read from them, how it is dealt to ranks, and what is said of mistakes.

#include "cli/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <string>

#include "cli/route_file.h"
#include "cli/router.h"

namespace moeway::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string data_file(const std::string& name) { return std::string(MOEWAY_SOURCE_DIR) + "/tests/data/" + name; }

// A file with the given text that lasts as long as the test.
class TextFile {
 public:
  explicit TextFile(const std::string& text)
      : path_(testing::TempDir() + "moeway_routes_" + std::to_string(getpid()) + ".jsonl") {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TextFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

RouteFileOptions options_for(const std::string& path, int num_ranks = 2, int64_t rounds = 10) {
  RouteFileOptions options;
  options.path = path;
  options.num_ranks = num_ranks;
  options.rounds = rounds;
  return options;
}

std::string error_of(const std::string& text) {
  const TextFile file(text);
  const Result<Routes> routes = read_route_file(options_for(file.path()));
  if (routes.ok()) return "no error";
  EXPECT_EQ(routes.status().code(), MOEWAY_INVALID_ARGUMENT);
  EXPECT_THAT(routes.status().message(), HasSubstr(file.path()));
  return routes.status().message().substr(file.path().size());
}

TEST(Routes, ReadsBatchesAndDealsThemRoundRobin) {
  const Result<Routes> read = read_route_file(options_for(data_file("routes_batches.jsonl")));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Routes& routes = read.value();
  EXPECT_EQ(routes.num_experts, 5);
  EXPECT_EQ(routes.topk, 2);
  EXPECT_EQ(routes.max_tokens, 3);
  EXPECT_EQ(routes.num_batches, 3);
  EXPECT_EQ(routes.num_tokens, 6);
  EXPECT_FALSE(routes.distinct_experts);  // The third batch has a token with expert 2 twice.
  ASSERT_EQ(routes.of_rank[0].size(), 2u);
  ASSERT_EQ(routes.of_rank[1].size(), 1u);
  EXPECT_THAT(routes.batch(0, 0).experts, ElementsAre(0, 4, 1, 2, 3, -1));
  EXPECT_THAT(routes.batch(0, 0).weights, ElementsAre(0.75f, 0.25f, 0.5f, 0.5f, 1.0f, 0.0f));
  EXPECT_THAT(routes.batch(1, 0).experts, ElementsAre(2, 2, 0, 1));
  EXPECT_THAT(routes.batch(2, 0).experts, ElementsAre(0, 4, 1, 2, 3, -1));  // The cycle begins again.
  EXPECT_THAT(routes.batch(1, 1).experts, ElementsAre(4, 3));
}

TEST(Routes, TakesOneLayerWhenAsked) {
  RouteFileOptions options = options_for(data_file("routes_batches.jsonl"));
  options.layer = 0;
  const Result<Routes> routes = read_route_file(options);
  ASSERT_TRUE(routes.ok()) << routes.status().message();
  EXPECT_EQ(routes.value().num_batches, 2);
  EXPECT_TRUE(routes.value().distinct_experts);
  EXPECT_THAT(routes.value().notes, testing::Contains(HasSubstr("1 records of other layers")));
  options.layer = 7;
  EXPECT_THAT(read_route_file(options).status().message(), HasSubstr("no routes of layer 7"));
}

TEST(Routes, ReadsTokensAndCutsThemIntoBatches) {
  RouteFileOptions options = options_for(data_file("routes_tokens.jsonl"));
  options.tokens = 2;
  const Result<Routes> read = read_route_file(options);
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Routes& routes = read.value();
  EXPECT_EQ(routes.num_experts, 4);  // Not said: one more than the largest id.
  EXPECT_THAT(routes.batch(0, 0).experts, ElementsAre(3, 1, 0, 2));
  EXPECT_THAT(routes.batch(0, 1).experts, ElementsAre(2, 3));
  // The last record has no weights: made up, 2/3 and 1/3, and said so.
  EXPECT_THAT(routes.batch(0, 1).weights, ElementsAre(2.0f / 3, 1.0f / 3));
  EXPECT_THAT(routes.notes, testing::Contains(HasSubstr("1 tokens came without weights")));
  EXPECT_THAT(routes.notes, testing::Contains(HasSubstr("1 records of other kinds")));
}

TEST(Routes, KeepsRecordsOfSeveralRanksApart) {
  const Result<Routes> read = read_route_file(options_for(data_file("routes_two_ranks.jsonl"), 3));
  ASSERT_TRUE(read.ok()) << read.status().message();
  const Routes& routes = read.value();
  ASSERT_EQ(routes.of_rank[0].size(), 2u);
  EXPECT_TRUE(routes.of_rank[1].empty());
  ASSERT_EQ(routes.of_rank[2].size(), 2u);  // 5 mod 3.
  EXPECT_THAT(routes.batch(0, 2).experts, ElementsAre(1, 2));
  EXPECT_EQ(routes.batch(1, 0).num_tokens, 0);
  EXPECT_EQ(routes.batch(0, 1).num_tokens, 0);
  EXPECT_THAT(routes.notes, testing::Contains(HasSubstr("1 of 3 ranks get no batch")));
}

TEST(Routes, StopsReadingWhenEveryRoundHasABatch) {
  std::string text;
  for (int line = 0; line < 10; ++line)
    text += R"({"top_indices": [[0, 1]]})"
            "\n";
  const TextFile file(text + "not JSON\n");
  const Result<Routes> routes = read_route_file(options_for(file.path(), 2, 3));
  ASSERT_TRUE(routes.ok()) << routes.status().message();
  EXPECT_EQ(routes.value().num_batches, 6);
  EXPECT_THAT(routes.value().notes, testing::Contains(HasSubstr("the rest was not read")));
  const TextFile whole(R"({"top_indices": [[0, 1]]})");
  EXPECT_THAT(read_route_file(options_for(whole.path(), 1, 1)).value().notes,
              testing::Not(testing::Contains(HasSubstr("the rest was not read"))));
}

TEST(Routes, CutsRecordedBatchesToTheSizeAskedFor) {
  RouteFileOptions options = options_for(data_file("routes_batches.jsonl"), 1);
  options.tokens = 4;
  const Result<Routes> routes = read_route_file(options);
  ASSERT_TRUE(routes.ok());
  EXPECT_EQ(routes.value().max_tokens, 4);
  EXPECT_THAT(routes.value().batch(0, 0).experts, ElementsAre(0, 4, 1, 2, 3, -1, 4, 3));
  EXPECT_THAT(routes.value().batch(1, 0).experts, ElementsAre(2, 2, 0, 1));
}

TEST(Routes, CountsExpertsAsTold) {
  RouteFileOptions options = options_for(data_file("routes_batches.jsonl"));
  options.experts = 64;
  EXPECT_EQ(read_route_file(options).value().num_experts, 64);
  options.experts = 4;
  EXPECT_THAT(read_route_file(options).status().message(),
              HasSubstr("routes_batches.jsonl:1: expert of token 0, route 1: 4, expected -1 to 3 (--experts is 4)"));
}

TEST(RouteMistakes, NameLineFieldValueAndExpectation) {
  const std::string good = R"({"top_indices": [[0, 1], [2, 3]], "num_experts": 4})"
                           "\n";
  EXPECT_EQ(error_of(good + R"({"top_indices": [[0, 4]], "num_experts": 4})"),
            ":2: expert of token 0, route 1: 4, expected -1 to 3 (num_experts is 4)");
  EXPECT_EQ(error_of(good + R"({"top_indices": [[0, -2]]})"),
            ":2: top_indices[0][1]: -2, expected a whole number from -1 to 2147483646");
  EXPECT_EQ(error_of(good + R"({"top_indices": [[0, 99999999999999999999]]})"),
            ":2: top_indices[0][1]: 99999999999999999999, expected a whole number from -1 to 2147483646");
  EXPECT_EQ(error_of(good + R"({"top_indices": [[0, 1.5]]})"),
            ":2: top_indices[0][1]: 1.5, expected a whole number from -1 to 2147483646");
  EXPECT_EQ(error_of(good + R"({"top_indices": [[0, "1"]]})"),
            ":2: top_indices[0][1]: \"1\", expected a whole number from -1 to 2147483646");
  EXPECT_EQ(error_of(good + R"({"top_indices": [[0, 1], [2]]})"), ":2: top_indices[1]: 1 entries, expected 2");
  EXPECT_EQ(error_of(good + R"({"top_indices": [[0, 1, 2]]})"),
            ":2: topk: 3 routes a token, expected 2 as in the records before");
  EXPECT_EQ(error_of(good + R"({"topk": 3, "top_indices": [[0, 1]]})"), ":2: top_indices[0]: 2 entries, expected 3");
  EXPECT_EQ(error_of(good + R"({"num_tokens": 2, "top_indices": [[0, 1]]})"),
            ":2: num_tokens: 2, expected 1, the tokens in top_indices");
  EXPECT_EQ(error_of(good + R"({"num_experts": 8, "top_indices": [[0, 1]]})"),
            ":2: num_experts: 8, expected 4 as in the records before");
  EXPECT_EQ(error_of(R"({"num_experts": 0, "top_indices": [[0]]})"), ":1: num_experts: 0, expected 1 to 2147483647");
  EXPECT_EQ(error_of(R"({"rank": -1, "top_indices": [[0]]})"), ":1: rank: -1, expected 0 or more");
  EXPECT_EQ(error_of(R"({"rank": "x", "top_indices": [[0]]})"), ":1: rank: \"x\", expected a whole number");
  EXPECT_EQ(error_of(R"({"rank": 0})"), ":1: top_indices: missing, and no topk_ids either, expected one of them");
  EXPECT_EQ(error_of(R"({"topk_ids": []})"), ":1: topk_ids: no entries, expected 1 or more");
  EXPECT_EQ(error_of(R"({"topk_ids": [1], "top_indices": [[1]]})"),
            ":1: top_indices: this record already has topk_ids");
  EXPECT_EQ(error_of(R"([1, 2])"), ":1: the line: an array, expected one JSON object a line");
  EXPECT_EQ(error_of(""), ": no routes, expected a record with some");
}

TEST(RouteMistakes, InWeights) {
  EXPECT_EQ(error_of(R"({"top_indices": [[0, 1]], "top_weights": [[0.5]]})"),
            ":1: top_weights[0]: 1 entries, expected 2");
  EXPECT_EQ(error_of(R"({"top_indices": [[0, 1]], "top_weights": [0.5, 0.5]})"),
            ":1: top_weights: 1 rows, expected 1, the shape of top_indices");
  EXPECT_EQ(error_of(R"({"topk_ids": [0, 1], "topk_weights": [0.5, null]})"),
            ":1: topk_weights[1]: null, expected a finite number");
  EXPECT_EQ(error_of(R"({"topk_ids": [0, 1], "topk_weights": [0.5, 1e300]})"),
            ":1: topk_weights[1]: 1e+300, expected a finite number");
  EXPECT_THAT(error_of(R"({"topk_ids": [0, 1], "topk_weights": [0.5, NaN]})"),
              testing::AllOf(HasSubstr(":1: topk_weights[1]: not JSON at byte "), HasSubstr("a finite number")));
}

TEST(RouteMistakes, InTheTextItself) {
  EXPECT_THAT(error_of(R"({"top_indices": [[0, 1], [2,)"),
              testing::AllOf(HasSubstr(":1: top_indices[1][1]: not JSON at byte "), HasSubstr("whole number")));
  EXPECT_THAT(error_of("{\"model\": \"\xff\xfe\", \"topk_ids\": [0]}"), HasSubstr("not UTF-8"));
  EXPECT_THAT(error_of("{\"topk_ids\": [0]} {\"topk_ids\": [0]}"), HasSubstr("not JSON at byte"));
  EXPECT_THAT(error_of(std::string("\0\0\0\0", 4)), HasSubstr(":1: the line: not JSON at byte 1"));
  EXPECT_THAT(error_of("{\"x\": \"" + std::string(size_t{65} << 20, 'a')), HasSubstr("the line has more than"));
  EXPECT_EQ(error_of(R"({"extra": [[[{"topk_ids": [1]}]]], "topk_ids": [0, 1]})"), "no error");
}

TEST(RouteMistakes, InTheFile) {
  EXPECT_THAT(read_route_file(options_for("/nonexistent/routes")).status().message(),
              HasSubstr("/nonexistent/routes: No such file"));
  EXPECT_THAT(read_route_file(options_for("/tmp")).status().message(), HasSubstr("/tmp: a directory"));
}

TEST(Routes, ReadRealTraces) {
  const std::string folder = std::string(MOEWAY_SOURCE_DIR) + "/../shared/routes/";
  const struct {
    const char* name;
    int experts, topk;
    int64_t tokens;
  } traces[] = {{"olmoe-1b-7b-gsm8k.jsonl", 64, 8, 4471}, {"qwen1.5-moe-a2.7b-gsm8k.jsonl", 60, 4, 4384}};
  for (const auto& trace : traces) {
    if (!std::filesystem::exists(folder + trace.name)) GTEST_SKIP() << "needs " << folder << trace.name;
    const Result<Routes> routes = read_route_file(options_for(folder + trace.name, 8, 100));
    ASSERT_TRUE(routes.ok()) << routes.status().message();
    EXPECT_EQ(routes.value().num_experts, trace.experts);
    EXPECT_EQ(routes.value().topk, trace.topk);
    EXPECT_EQ(routes.value().num_tokens, trace.tokens);
    EXPECT_EQ(routes.value().max_tokens, 128);
    EXPECT_TRUE(routes.value().distinct_experts);
  }
}

TEST(Router, IsSkewedDistinctAndTheSameForTheSameSeed) {
  RouterOptions options;
  options.num_ranks = 3;
  options.num_experts = 16;
  options.topk = 4;
  options.tokens = 200;
  options.rounds = 4;
  options.skew = 1.0;
  options.seed = 5;
  const Routes routes = skewed_routes(options);
  EXPECT_TRUE(routes.distinct_experts);
  EXPECT_EQ(routes.num_batches, 12);
  std::vector<int64_t> load(16);
  for (int rank = 0; rank < 3; ++rank) {
    for (int64_t round = 0; round < 4; ++round) {
      const Batch& batch = routes.batch(round, rank);
      ASSERT_EQ(batch.num_tokens, 200);
      for (const int32_t expert : batch.experts) ++load[static_cast<size_t>(expert)];
      for (int64_t t = 0; t < 200; ++t) {
        const float* weights = &batch.weights[static_cast<size_t>(4 * t)];
        EXPECT_NEAR(std::accumulate(weights, weights + 4, 0.0f), 1.0f, 1e-6f);
      }
    }
  }
  EXPECT_GT(*std::max_element(load.begin(), load.end()), 3 * *std::min_element(load.begin(), load.end()));
  EXPECT_EQ(skewed_routes(options).batch(1, 2).experts, routes.batch(1, 2).experts);
  EXPECT_NE(routes.batch(1, 1).experts, routes.batch(1, 2).experts);
  options.seed = 6;
  EXPECT_NE(skewed_routes(options).batch(1, 2).experts, routes.batch(1, 2).experts);
}

TEST(Router, MakesBatchesOfEverySizeWhenRagged) {
  RouterOptions options;
  options.num_ranks = 4;
  options.tokens = 3;
  options.rounds = 16;
  options.ragged = true;
  const Routes routes = skewed_routes(options);
  std::set<int64_t> sizes;
  for (int rank = 0; rank < 4; ++rank)
    for (int64_t round = 0; round < 16; ++round) sizes.insert(routes.batch(round, rank).num_tokens);
  EXPECT_EQ(sizes, (std::set<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(routes.max_tokens, 3);
}

}  // namespace
}  // namespace moeway::cli
