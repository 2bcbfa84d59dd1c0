// More tokens than the declared maximum are refused on the rank that has them, before anything is sent.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case full_case(const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = 4;
  job.shape.num_experts = 8;
  job.shape.topk = 2;
  job.shape.hidden = 40;
  job.shape.max_tokens = 16;
  layout.apply(job.shape);
  job.tokens = reference::Tokens::kFull;
  job.routes = reference::Routes::kMixed;
  job.rounds = 3;
  return job;
}

// The same tensors with more rows than there may be; nobody may touch them.
DispatchInput with_tokens(DispatchInput in, int64_t num_tokens) {
  for (moeway_tensor* tensor : {&in.x, &in.topk_idx, &in.topk_weights})
    if (tensor->ndim > 0) tensor->shape[0] = num_tokens;
  return in;
}

TEST(TooManyTokens, AreRefusedAndTheRightCallThatFollowsWorks) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const As as : {As::kThreads, As::kProcesses}) {
      const Case job = full_case(layout);
      const auto batches = make_batches(job);
      expect_runs(4, as, [&](Rank& rank) {
        Job own(rank, job, batches);
        if (!own.create() || !own.dispatch(0) || !own.combine(0)) return;
        if (rank.rank() == 0) {
          const DispatchInput in = own.make_input(1);
          for (const int64_t tokens : {int64_t{17}, int64_t{80}, int64_t{96}, int64_t{1} << 32}) {
            rank.expect_error(own.all_to_all().dispatch_send(with_tokens(in, tokens)).status(), MOEWAY_INVALID_ARGUMENT,
                              {"x", std::to_string(tokens), "max_tokens", "16"}, "too many tokens");
          }
        }
        // T = M exactly.
        if (own.dispatch(1) && own.combine(1) && own.dispatch(2)) own.combine(2);
      });
    }
  }
}

TEST(TooManyTokens, PeersOfARankThatGivesUpFailInTime) {
  Case job = full_case(kLayoutForms[0]);
  job.timeout_ms = 700;
  const auto batches = make_batches(job);
  expect_runs(4, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create()) return;
    const DispatchInput in = own.make_input(0);
    const DispatchOutput out = own.make_output(0);
    if (rank.rank() == 0) {
      rank.expect_error(own.all_to_all().dispatch(with_tokens(in, 17), out).status(), MOEWAY_INVALID_ARGUMENT,
                        {"17", "16"}, "too many tokens");
      rank.expect_ok(own.all_to_all().status(), "a caller's mistake does not end the object");
    } else {
      rank.expect_error(own.all_to_all().dispatch(in, out).status(), MOEWAY_DEADLINE_EXCEEDED, {"rank 0"},
                        "dispatch without rank 0");
    }
    rank.expect_ok(rank.communicator().barrier(), "barrier");
    rank.expect_ok(own.all_to_all().close(), "close");
    // The communicator is as good as before.
    Job again(rank, job, batches);
    if (again.create() && again.dispatch(1)) again.combine(1);
  });
}

}  // namespace
}  // namespace moeway::multi_rank
