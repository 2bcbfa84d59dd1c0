// Jobs of any shape against the oracle: drawn at random, and every combination of types and layouts once.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

using reference::Random;
using reference::Shape;

constexpr Execution kExecutions[] = {kFibers, kThreads, kLanes};

int64_t draw_hidden(Random& random) {
  constexpr int64_t kOdd[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 127, 128, 129, 255, 257};
  return random.chance(60) ? random.pick(kOdd) : random.between(1, 300);
}

Shape draw_shape(Random& random) {
  Shape shape;
  shape.num_ranks = static_cast<int>(random.between(1, 6));
  shape.num_experts = static_cast<int>(random.between(1, random.chance(70) ? 16 : 80));
  shape.topk = static_cast<int>(random.between(1, std::min(shape.num_experts, random.chance(70) ? 6 : 20)));
  shape.hidden = draw_hidden(random);
  shape.max_tokens = random.between(1, random.chance(70) ? 12 : 50);
  random.pick(kLayoutForms).apply(shape);
  if (shape.layout == reference::Layout::kExpertPacked) shape.alignment = random.chance(50) ? 1 : random.between(2, 20);
  TokenForm form = random.pick(kTokenForms);
  if (form.token_bytes > 0) form.token_bytes = random.between(1, 100);
  if (form.scale_bytes > 0) form.scale_bytes = random.between(1, 40);
  form.apply(shape);
  shape.row_dtype = random.pick(kSumTypes);
  shape.output_dtype = random.pick(kSumTypes);
  shape.distinct_experts = random.chance(40);
  if (random.chance(30)) {
    do shape.replicas = static_cast<int>(random.between(1, shape.num_ranks));
    while (shape.num_ranks % shape.replicas != 0);
  }
  if (shape.layout != reference::Layout::kTokenMajor && random.chance(30)) {
    // From nearly nothing to more than can come.
    shape.max_recv_tokens = shape.alignment * random.between(1, 2 * shape.num_ranks * shape.max_tokens);
  }
  return shape;
}

Case draw_case(uint64_t seed) {
  Random random(seed);
  constexpr reference::Tokens kTokens[] = {reference::Tokens::kRandom, reference::Tokens::kFull,
                                           reference::Tokens::kSomeEmpty, reference::Tokens::kOneRank};
  constexpr Ids kIds[] = {Ids::kI64, Ids::kI32, Ids::kPerRank};
  constexpr Order kOrders[] = {Order::kFused, Order::kSplit, Order::kPipelined};
  Case job;
  job.seed = seed;
  job.shape = draw_shape(random);
  job.values = random.pick(kComparedValues);
  job.routes = random.pick(reference::kAllRoutes);
  job.tokens = random.pick(kTokens);
  job.ids = random.pick(kIds);
  job.counted = random.chance(25);
  job.views = random.chance(50) ? Views::kStrided : Views::kDense;
  job.order = random.pick(kOrders);
  job.add = random.chance(30);
  job.view = job.shape.layout == reference::Layout::kTokenMajor && random.chance(50);
  job.unweighted = job.shape.layout != reference::Layout::kTokenMajor && random.chance(20);
  job.combine_every = static_cast<int>(random.chance(75) ? 1 : random.between(0, 3));
  job.execution = random.chance(60) ? kFibers : random.pick(kExecutions);
  job.num_warps = static_cast<int>(random.between(1, 9));
  job.rounds = static_cast<int>(random.between(1, 6));
  job.max_delay_us = random.chance(50) ? 0 : static_cast<int>(random.between(1, 500));
  // Rows that are not numbers can travel, but not be summed and compared.
  if (random.chance(10)) {
    job.values = reference::Values::kAnyBits;
    job.combine_every = 0;
  }
  return job;
}

// As many as the time allows.
void run_random_cases(As as, int most, std::chrono::seconds budget) {
  const uint64_t seed = printed_seed();
  const auto end = std::chrono::steady_clock::now() + budget;
  int done = 0;
  for (; done < most && std::chrono::steady_clock::now() < end; ++done) {
    const uint64_t own = reference::hash(seed, static_cast<uint64_t>(done));
    if (!expect_passes(draw_case(own), as)) {
      ADD_FAILURE() << "case " << done << " of seed " << seed;
      return;
    }
  }
  std::printf("%d cases\n", done);
}

TEST(RandomShapes, RanksAsThreadsGiveWhatTheReferenceGives) {
  run_random_cases(As::kThreads, scaled(600), std::chrono::seconds(25));
}

TEST(RandomShapes, RanksAsProcessesGiveWhatTheReferenceGives) {
  run_random_cases(As::kProcesses, scaled(150), std::chrono::seconds(20));
}

// Every token form with every row and output type and both id types, for one layout and place of weights.
void run_all_types(const LayoutForm& layout) {
  int index = 0;
  for (const TokenForm& form : kTokenForms) {
    for (const reference::DType rows : kSumTypes) {
      for (const reference::DType output : kSumTypes) {
        for (const Ids ids : {Ids::kI32, Ids::kI64}) {
          if (kSanitizer && ++index % 7 != 0) continue;
          Case job;
          job.shape.num_ranks = 3;
          job.shape.num_experts = 7;
          job.shape.topk = 3;
          job.shape.hidden = 133;
          job.shape.max_tokens = 5;
          layout.apply(job.shape);
          form.apply(job.shape);
          job.shape.row_dtype = rows;
          job.shape.output_dtype = output;
          job.ids = ids;
          job.values = ids == Ids::kI32 ? reference::Values::kArbitrary : reference::Values::kExact;
          job.routes = reference::Routes::kMixed;
          job.order = ids == Ids::kI32 ? Order::kFused : Order::kSplit;
          job.num_warps = 3;
          if (!expect_passes(job)) return;
        }
      }
    }
  }
}

TEST(AllTypes, PaddedWithWeightsAtDispatch) { run_all_types(kLayoutForms[0]); }
TEST(AllTypes, PaddedWithWeightsAtCombine) { run_all_types(kLayoutForms[1]); }
TEST(AllTypes, PackedWithWeightsAtDispatch) { run_all_types(kLayoutForms[2]); }
TEST(AllTypes, PackedWithWeightsAtCombine) { run_all_types(kLayoutForms[3]); }
TEST(AllTypes, TokenMajor) { run_all_types(kLayoutForms[4]); }

}  // namespace
}  // namespace moeway::multi_rank
