// token_major: tokens copied out, or left where they lie.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case token_case(const TokenForm& form) {
  Case job;
  job.shape.num_ranks = 3;
  job.shape.num_experts = 8;
  job.shape.topk = 3;
  job.shape.hidden = 133;
  job.shape.max_tokens = 6;
  kLayoutForms[4].apply(job.shape);
  form.apply(job.shape);
  job.routes = reference::Routes::kMixed;
  job.values = reference::Values::kArbitrary;
  job.rounds = 6;
  job.max_delay_us = 200;
  return job;
}

TEST(TokenMajor, TheViewHoldsWhatTheCopyHolds) {
  for (const TokenForm& form : kTokenForms) {
    for (const bool view : {false, true}) {
      for (const As as : {As::kThreads, As::kProcesses}) {
        Case job = token_case(form);
        job.view = view;
        job.order = Order::kSplit;
        ASSERT_TRUE(expect_passes(job, as));
      }
    }
  }
}

TEST(TokenMajor, AViewMayBeReadUntilTheNextDispatchSend) {
  for (const int every : {1, 2, 0}) {
    Case job = token_case(kTokenForms[5]);
    job.view = true;
    job.order = Order::kPipelined;
    job.combine_every = every;
    job.rounds = 20;
    ASSERT_TRUE(expect_passes(job));
    ASSERT_TRUE(expect_passes(job, As::kProcesses));
  }
}

// Peers run on and send the next round while this rank still reads the view of this one.
TEST(TokenMajor, AViewStaysAsItIsWhilePeersSendTheNextRound) {
  Case job = token_case(kTokenForms[0]);
  job.view = true;
  const auto batches = make_batches(job);
  for (const As as : {As::kThreads, As::kProcesses}) {
    expect_runs(3, as, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create() || !own.dispatch(0)) return;
      const auto read = [&] {
        Tensor view;
        rank.expect_ok(own.all_to_all().dispatch_view(own.routing(0), &view), "dispatch_view");
        std::vector<std::byte> bytes;
        const reference::Received received = expected_dispatch(job.shape, batches[0], rank.rank(), 0);
        for (const reference::TokenRow& row : received.tokens) {
          const auto* from = static_cast<const std::byte*>(view.data) + row.position * view.strides[0] * 2;
          bytes.insert(bytes.end(), from, from + job.shape.row_bytes());
        }
        return bytes;
      };
      const std::vector<std::byte> before = read();
      if (rank.rank() != 0) {
        if (!own.combine_send(0) || !own.dispatch_send(1)) return;
      }
      rank.expect_ok(rank.communicator().barrier(), "barrier");
      if (rank.rank() == 0) {
        rank.expect(read() == before, "the view has changed");
        if (!own.combine_send(0) || !own.dispatch_send(1)) return;
      }
      if (own.combine_recv(0) && own.dispatch_recv(1)) own.combine(1);
    });
  }
}

TEST(TokenMajor, AViewIsRefusedWhereThereIsNone) {
  const Case copied = token_case(kTokenForms[0]);
  Case padded = copied;
  kLayoutForms[0].apply(padded.shape);
  Case viewed = copied;
  viewed.view = true;
  const auto copied_batches = make_batches(copied);
  const auto padded_batches = make_batches(padded);
  expect_runs(3, As::kThreads, [&](Rank& rank) {
    Tensor view;
    Job copies(rank, copied, copied_batches);
    Job rows(rank, padded, padded_batches);
    Job views(rank, viewed, copied_batches);
    if (!copies.create() || !rows.create() || !views.create()) return;
    if (!copies.dispatch(0) || !rows.dispatch(0) || !views.dispatch_send(0)) return;
    const auto refused = [&](Job& own, Routing routing, const char* what) {
      rank.expect_error(own.all_to_all().dispatch_view(routing, &view), MOEWAY_WRONG_STATE, {"dispatch_view"}, what);
    };
    refused(copies, copies.routing(0), "copied");
    refused(rows, rows.routing(0), "expert_padded");
    refused(views, views.routing(0), "before dispatch_recv");
    if (!views.dispatch_recv(0)) return;
    const Routing first = views.routing(0);
    rank.expect_error(Status::from_c(moeway_dispatch_view(views.all_to_all().get(), first, nullptr, nullptr)),
                      MOEWAY_INVALID_ARGUMENT, {"x", "null"}, "x null");
    if (!views.combine(0) || !views.dispatch_send(1)) return;
    refused(views, first, "after the next dispatch_send");
    if (views.dispatch_recv(1)) views.combine(1);
  });
}

}  // namespace
}  // namespace moeway::multi_rank
