// A thousand rounds from the same memory, its contents changed in place each time: no round is answered with the data
// or the counter of another. (Counters near their limits: tests/unit/round_counter_test.cc.)
#include <gtest/gtest.h>

#include <cstring>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case long_case(int rounds) {
  Case job;
  job.shape.num_ranks = 3;
  job.shape.num_experts = 7;
  job.shape.topk = 2;
  job.shape.hidden = 8;
  job.shape.max_tokens = 4;
  job.rounds = rounds;
  job.num_warps = 2;
  job.seed = 95;
  return job;
}

// Overwrites a tensor's elements with those of another one of the same shape, both dense.
void overwrite(const Tensor& to, const moeway_tensor& from) {
  const auto bytes = static_cast<size_t>(from.shape[0] * from.shape[1] * moeway_dtype_bytes(from.dtype));
  if (bytes > 0) std::memcpy(to.data, from.data, bytes);
}

void run_in_place(As as, int rounds) {
  Case job = long_case(rounds);
  job.tokens = reference::Tokens::kFull;
  const auto batches = make_batches(job);
  expect_runs(3, as, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create()) return;
    Memory<uint16_t> x(4 * 8);
    Memory<int64_t> topk_idx(4 * 2);
    Memory<float> topk_weights(4 * 2);
    DispatchInput kept;
    kept.x = place::here(Tensor(x.data(), kBf16, {4, 8}));
    kept.topk_idx = place::here(Tensor(topk_idx.data(), kI64, {4, 2}));
    kept.topk_weights = place::here(Tensor(topk_weights.data(), kF32, {4, 2}));
    for (int round = 0; round < job.rounds; ++round) {
      const DispatchInput next = own.make_input(round);
      overwrite(Tensor(kept.x), next.x);
      overwrite(Tensor(kept.topk_idx), next.topk_idx);
      overwrite(Tensor(kept.topk_weights), next.topk_weights);
      if (!own.dispatch_with(round, kept) || !own.combine(round)) return;
    }
  });
}

TEST(RoundCounter, AThousandRoundsInPlaceAsThreads) { run_in_place(As::kThreads, scaled(1000)); }
TEST(RoundCounter, AThousandRoundsInPlaceAsProcesses) { run_in_place(As::kProcesses, scaled(1000)); }

// Another number of tokens in each round, empty ones among them: as graphs of different size would have.
TEST(RoundCounter, RoundsOfDifferentSizes) {
  Case job = long_case(scaled(500));
  job.order = Order::kPipelined;
  expect_passes(job);
  expect_passes(job, As::kProcesses);
}

}  // namespace
}  // namespace moeway::multi_rank
