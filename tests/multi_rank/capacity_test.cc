// A bound of dispatch's output (max_recv_tokens): what has no room is dropped and counted, or ends the dispatch, and nothing
// is written where there is no room. Tensors are exactly as large as the sizes say, with canaries around them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case bounded_case(const LayoutForm& layout, int64_t bound) {
  Case job;
  job.shape.num_ranks = 3;
  job.shape.num_experts = 7;
  job.shape.topk = 4;
  job.shape.hidden = 133;
  layout.apply(job.shape);
  job.shape.max_recv_tokens = bound * job.shape.alignment;
  job.routes = reference::Routes::kMixed;
  job.tokens = reference::Tokens::kFull;
  job.values = reference::Values::kArbitrary;
  job.rounds = 3;
  return job;
}

TEST(Capacity, RowsBeyondItAreDroppedInTheOrderOfTheRowsAndLeftOutOfSums) {
  for (size_t form = 0; form < 4; ++form) {
    for (const Order order : {Order::kFused, Order::kSplit, Order::kPipelined}) {
      for (const int64_t bound : {1, 3, 10}) {
        Case job = bounded_case(kLayoutForms[form], bound);
        job.order = order;
        if (!expect_passes(job)) return;
      }
    }
  }
}

// Routes of a token are worked on 32 at a time, and places of dropped ones are closed up.
TEST(Capacity, HoldsForTokensOfMoreRoutesThanAWarpHasLanes) {
  for (size_t form = 0; form < 4; ++form) {
    for (const Order order : {Order::kFused, Order::kSplit}) {
      Case job = bounded_case(kLayoutForms[form], 5);
      job.shape.num_experts = 80;
      job.shape.topk = 75;
      job.shape.max_recv_tokens *= kLayoutForms[form].layout == reference::Layout::kExpertPacked ? 40 : 1;
      job.order = order;
      if (!expect_passes(job)) return;
    }
  }
}

TEST(Capacity, WhatNeverOverflowsIsNeverAnError) {
  for (size_t form = 0; form < 5; ++form) {
    Case job = bounded_case(kLayoutForms[form], 1000);
    job.overflow = kOverflowError;
    if (!expect_passes(job)) return;
  }
}

TEST(Capacity, DroppedRowsAreCounted) {
  for (size_t form = 0; form < 4; ++form) {
    const Case job = bounded_case(kLayoutForms[form], 2);
    const auto batches = make_batches(job);
    expect_runs(3, As::kThreads, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      int64_t kept = 0, dropped = 0;
      for (int round = 0; round < job.rounds; ++round) {
        if (!own.dispatch(round) || !own.combine(round)) return;
        const auto expected = expected_dispatch(job.shape, batches[static_cast<size_t>(round)], rank.rank(), 0);
        for (const int32_t rows : expected.num_rows) kept += rows;
        for (const int32_t rows : expected.num_dropped) dropped += rows;
      }
      const AllToAllStats stats = own.all_to_all().stats().value();
      rank.expect(dropped > 0, "the case drops nothing");
      rank.expect(stats.rows_received == kept, "rows_received is " + std::to_string(stats.rows_received));
      rank.expect(stats.rows_dropped == dropped, "rows_dropped is " + std::to_string(stats.rows_dropped));
    });
  }
}

// 3 ranks, 2 experts each; every token goes to expert 3 of rank 1, one of each rank to rank 0 as well.
struct Overflowing {
  explicit Overflowing(const LayoutForm& layout) {
    job.shape.num_ranks = 3;
    job.shape.num_experts = 6;
    layout.apply(job.shape);
    job.shape.max_recv_tokens = 8;
    job.overflow = kOverflowError;
    job.rounds = 1;
    job.batch = [shape = job.shape](int) {
      reference::Batch batch;
      for (int r = 0; r < 3; ++r)
        batch.push_back(make_input(shape, reference::Values::kExact, 1, 0, r, {3, -1, 3, 0, 3, -1}));
      return batch;
    };
  }
  Case job;
};

TEST(Capacity, OverflowIsAnErrorThatNamesTheExpertAndEndsTheRound) {
  using Clock = std::chrono::steady_clock;
  for (size_t form = 0; form < 4; ++form) {
    for (const bool split : {false, true}) {
      const bool padded = kLayoutForms[form].layout == reference::Layout::kExpertPadded;
      const Overflowing overflowing(kLayoutForms[form]);
      const auto batches = make_batches(overflowing.job);
      expect_runs(3, As::kThreads, [&](Rank& rank) {
        Job own(rank, overflowing.job, batches);
        if (!own.create()) return;
        const auto start = Clock::now();
        AllToAll& object = own.all_to_all();
        const DispatchInput in = own.make_input(0);
        const DispatchOutput out = own.make_output(0);
        Status status;
        Routing routing{};
        const auto keep = [&](const Result<Routing>& made) {
          status = made.status();
          if (made.ok()) routing = made.value();
        };
        if (split) {
          keep(object.dispatch_send(in));
          if (status.ok()) status = object.dispatch_recv(routing, out);
        } else {
          keep(object.dispatch(in, out));
        }
        if (rank.rank() == 1) {
          rank.expect(status.code() == MOEWAY_OVERFLOW, status.to_string());
          for (const char* part : {"expert 3", padded ? "9 rows" : "are 9", "max_recv_tokens = 8"})
            rank.expect(status.message().find(part) != std::string::npos, status.message());
          rank.expect(object.status().code() == MOEWAY_OVERFLOW, "status() is " + object.status().to_string());
          rank.expect(
              static_cast<const int32_t*>(out.num_rows.data)[0] == static_cast<const int32_t*>(out.num_rows.data)[1],
              "num_rows was written");
          rank.expect(object.dispatch(in, out).status().code() == MOEWAY_OVERFLOW, "the object goes on");
          return;
        }
        // Rank 2 owns nothing that is wanted, and rank 0 has room. They hear of it when they wait for rank 1.
        const Tensor weights = own.combine_weights(0);
        const bool at_combine = overflowing.job.shape.weights == reference::Weights::kAtCombine;
        if (status.ok())
          status = at_combine ? object.combine(routing, own.rows(0), weights, own.y(0))
                              : object.combine(routing, own.rows(0), own.y(0));
        rank.expect(status.code() == MOEWAY_PEER_LOST, status.to_string());
        rank.expect(status.message().find("rank 1") != std::string::npos, status.message());
        rank.expect(Clock::now() - start < std::chrono::seconds(15), "waited for the deadline");
      });
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
