// What must be equal is compared at creation and the difference told to all ranks; what need not be, the number of
// tokens of a call, may differ all the time.
#include <gtest/gtest.h>

#include <chrono>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

AllToAllConfig config_of(int64_t max_tokens) {
  AllToAllConfig config;
  config.num_experts = 16;
  config.topk = 2;
  config.hidden = 64;
  config.max_tokens = max_tokens;
  return config;
}

void run(As as, const char* field, const std::vector<std::string>& values,
         const std::function<void(AllToAllConfig&)>& change) {
  const RanksResult result = run_ranks({4, as, std::chrono::seconds(30), true}, [&](Rank& rank) {
    AllToAllConfig config = config_of(32);
    if (rank.rank() == 3) change(config);
    const auto start = std::chrono::steady_clock::now();
    const Status status = AllToAll::create(rank.communicator(), config).status();
    rank.expect(std::chrono::steady_clock::now() - start < std::chrono::seconds(5), "took 5 s or longer");
    std::vector<std::string> texts = values;
    texts.insert(texts.end(), {field, "rank 0", "rank 3"});
    rank.expect_error(status, MOEWAY_MISMATCH, texts, "create");
    rank.give(status.message());
  });
  EXPECT_EQ(result.failures, "");
  for (int r = 1; r < 4; ++r) EXPECT_EQ(result.text(r), result.text(0));
}

TEST(DifferingSizes, AtCreationFailOnAllRanksWithTheDifference) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    run(as, "max_tokens", {"32", "64"}, [](AllToAllConfig& c) { c.max_tokens = 64; });
    run(as, "hidden", {"64", "72"}, [](AllToAllConfig& c) { c.hidden = 72; });
    run(as, "num_experts", {"16", "12"}, [](AllToAllConfig& c) { c.num_experts = 12; });
    run(as, "topk", {"2", "4"}, [](AllToAllConfig& c) { c.topk = 4; });
    run(as, "dispatch_dtype", {"bf16", "f32"}, [](AllToAllConfig& c) { c.dispatch_dtype = kF32; });
  }
}

TEST(DifferingSizes, TheNumberOfTokensMayDifferInEveryCall) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job;
    job.shape.num_ranks = 4;
    job.shape.num_experts = 16;
    job.shape.topk = 2;
    job.shape.hidden = 6;
    job.shape.max_tokens = 64;
    job.shape.distinct_experts = true;
    layout.apply(job.shape);
    job.rounds = scaled(100);
    job.batch = [shape = job.shape](int round) {
      // The four sizes change places.
      constexpr int64_t kSizes[] = {1, 7, 64, 13};
      std::vector<int64_t> tokens;
      for (int rank = 0; rank < 4; ++rank) tokens.push_back(kSizes[(rank + round) % 4]);
      return make_batch(shape, reference::Values::kExact, reference::Routes::kZipf, tokens, 97, round);
    };
    ASSERT_TRUE(expect_passes(job, layout.layout == reference::Layout::kExpertPacked ? As::kProcesses : As::kThreads));
  }
}

}  // namespace
}  // namespace moeway::multi_rank
