// What a caller may do beyond one round after another: several objects, dispatches without combine, phases of two
// rounds under way at once.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case small_case(const LayoutForm& layout, uint64_t seed) {
  Case job;
  job.shape.num_ranks = 3;
  job.shape.num_experts = 8;
  job.shape.topk = 3;
  job.shape.hidden = 33;
  job.shape.max_tokens = 9;
  layout.apply(job.shape);
  job.routes = reference::Routes::kMixed;
  job.values = reference::Values::kArbitrary;
  job.rounds = 10;
  job.max_delay_us = 300;
  job.seed = seed;
  return job;
}

// Phases of two objects of different shape on one communicator, in several interleavings.
bool interleave(Job& a, Job& b, int round) {
  switch (round % 4) {
    case 0:
      return a.dispatch_send(round) && b.dispatch_send(round) && a.dispatch_recv(round) && b.dispatch_recv(round) &&
             b.combine_send(round) && a.combine_send(round) && a.combine_recv(round) && b.combine_recv(round);
    case 1:
      return a.dispatch(round) && b.dispatch_send(round) && a.combine_send(round) && b.dispatch_recv(round) &&
             b.combine(round) && a.combine_recv(round);
    case 2:
      return a.dispatch_send(round) && b.dispatch(round) && b.combine(round) && a.dispatch_recv(round) &&
             a.combine(round);
    default:
      return b.dispatch_send(round) && a.dispatch(round) && a.combine(round) && b.dispatch_recv(round) &&
             b.combine_send(round) && b.combine_recv(round);
  }
}

void run_two_objects(As as) {
  for (const LayoutForm& layout : kLayoutForms) {
    const Case first = small_case(layout, 21);
    Case second = small_case(kLayoutForms[0], 22);
    second.shape.num_experts = 5;
    second.shape.topk = 5;
    second.shape.hidden = 128;
    second.shape.max_tokens = 4;
    second.shape.output_dtype = reference::DType::kF32;
    const auto first_batches = make_batches(first);
    const auto second_batches = make_batches(second);
    const bool passed = expect_runs(3, as, [&](Rank& rank) {
      Job a(rank, first, first_batches);
      Job b(rank, second, second_batches);
      if (!a.create() || !b.create()) return;
      for (int round = 0; round < first.rounds; ++round)
        if (!interleave(a, b, round)) return;
      // Closing one does not disturb the other.
      a.close();
    });
    ASSERT_TRUE(passed) << describe(first);
  }
}

TEST(Interleaving, TwoObjectsOnOneCommunicatorAsThreads) { run_two_objects(As::kThreads); }
TEST(Interleaving, TwoObjectsOnOneCommunicatorAsProcesses) { run_two_objects(As::kProcesses); }

TEST(Interleaving, AnObjectThatIsClosedLeavesTheOthersAlone) {
  const Case job = small_case(kLayoutForms[0], 23);
  const auto batches = make_batches(job);
  expect_runs(3, As::kThreads, [&](Rank& rank) {
    Job kept(rank, job, batches);
    if (!kept.create()) return;
    {
      Job closed(rank, job, batches);
      if (!closed.create() || !closed.dispatch(0) || !closed.close()) return;
    }
    Job later(rank, job, batches);
    if (!later.create()) return;
    for (int round = 0; round < job.rounds; ++round)
      if (!kept.dispatch(round) || !later.dispatch(round) || !kept.combine(round) || !later.combine(round)) return;
  });
}

TEST(Interleaving, ObjectsOutliveTheCloseOfTheirCommunicator) {
  const Case job = small_case(kLayoutForms[0], 24);
  const auto batches = make_batches(job);
  for (const As as : {As::kThreads, As::kProcesses}) {
    expect_runs(3, as, [&](Rank& rank) {
      Job kept(rank, job, batches);
      if (!kept.create() || !kept.dispatch(0)) return;
      rank.expect_ok(rank.communicator().close(), "communicator.close");
      rank.expect_ok(rank.communicator().close(), "communicator.close again");
      rank.expect_error(rank.communicator().barrier(), MOEWAY_WRONG_STATE, {"communicator"}, "barrier after close");
      if (kept.combine(0) && kept.dispatch(1)) kept.combine(1);
    });
  }
}

TEST(Interleaving, DispatchesWithoutCombine) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const int every : {0, 2, 3, 5}) {
      Case job = small_case(layout, 25);
      job.rounds = 12;
      job.combine_every = every;
      job.order = every % 2 == 0 ? Order::kFused : Order::kSplit;
      ASSERT_TRUE(expect_passes(job, every == 3 ? As::kProcesses : As::kThreads));
    }
  }
}

TEST(Interleaving, TheNextDispatchMayComeBeforeTheCombineOfTheRoundBefore) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const As as : {As::kThreads, As::kProcesses}) {
      Case job = small_case(layout, 26);
      job.order = Order::kPipelined;
      job.rounds = 30;
      ASSERT_TRUE(expect_passes(job, as));
      job.combine_every = 2;
      ASSERT_TRUE(expect_passes(job, as));
    }
  }
}

// Each rank's send returns before the next rank starts its own: one that waited for a peer's would fail at the
// deadline.
TEST(Interleaving, ASendDoesNotWaitForAnyPeer) {
  const Case job = small_case(kLayoutForms[0], 27);
  const auto batches = make_batches(job);
  expect_runs(3, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create()) return;
    for (int round = 0; round < 4; ++round) {
      // In turn, rank after rank: everybody has returned from its send before the next one starts.
      for (int turn = 0; turn < 3; ++turn) {
        if (turn == rank.rank() && !own.dispatch_send(round)) return;
        if (!rank.expect_ok(rank.communicator().barrier(), "barrier")) return;
      }
      if (!own.dispatch_recv(round)) return;
      for (int turn = 2; turn >= 0; --turn) {
        if (turn == rank.rank() && !own.combine_send(round)) return;
        if (!rank.expect_ok(rank.communicator().barrier(), "barrier")) return;
      }
      if (!own.combine_recv(round)) return;
    }
  });
}

}  // namespace
}  // namespace moeway::multi_rank
