// The number of tokens as a word in memory, beside tensors that have room for more.
#include <gtest/gtest.h>

#include "multi_rank/mistakes.h"

namespace moeway::multi_rank {
namespace {

// What lies behind the tokens is garbage: ids that would be errors, weights, rows. y's rows behind them stay as they are.
TEST(TokenCount, RowsBehindItAreNeitherReadNorWritten) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const Order order : {Order::kFused, Order::kSplit, Order::kPipelined}) {
      Case job = mistakes_case(layout);
      job.batch = nullptr;
      job.counted = true;
      job.order = order;
      job.tokens = order == Order::kSplit ? reference::Tokens::kSomeEmpty : reference::Tokens::kRandom;
      job.rounds = 6;
      if (!expect_passes(job)) return;
    }
  }
}

TEST(TokenCount, AWrongOneIsRefusedBeforeAnythingIsSent) {
  Case job = mistakes_case(kLayoutForms[0]);
  job.counted = true;
  const std::vector<reference::Batch> batches = make_batches(job);
  expect_runs(job.shape.num_ranks, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create()) return;
    for (const int32_t given : {6, -1, INT32_MAX, INT32_MIN}) {
      DispatchInput in = own.make_input(0);
      *static_cast<int32_t*>(in.num_tokens.data) = given;
      rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT,
                        {"num_tokens is " + std::to_string(given), "0 to 5", "max_tokens is 5"}, "count");
    }
    DispatchInput in = own.make_input(0);
    --in.x.shape[0], --in.scales.shape[0], --in.topk_idx.shape[0], --in.topk_weights.shape[0];
    *static_cast<int32_t*>(in.num_tokens.data) = 5;
    rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT,
                      {"num_tokens is 5", "0 to 4"}, "more than x has");
    for (const Mistake<DispatchInput>& mistake : tensor_mistakes<DispatchInput>(
             "num_tokens", [](DispatchInput& i) -> moeway_tensor& { return i.num_tokens; }, kI64)) {
      DispatchInput spoilt = own.make_input(0);
      mistake.spoil(spoilt);
      if (spoilt.num_tokens.ndim == 0) continue;  // Not given: all rows of x, which end in garbage.
      rank.expect_error(own.all_to_all().dispatch_send(spoilt).status(), mistake.code, mistake.parts, mistake.name);
    }
    if (own.dispatch(0)) own.combine(0);
  });
}

}  // namespace
}  // namespace moeway::multi_rank
