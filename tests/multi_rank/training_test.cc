// What training needs: routes used again for other rows, and combines that take every weight as 1.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case training_case(const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = 4;
  job.shape.num_experts = 9;
  job.shape.topk = 3;
  job.shape.hidden = 70;
  layout.apply(job.shape);
  job.shape.output_dtype = reference::DType::kF32;
  job.values = reference::Values::kArbitrary;
  job.routes = reference::Routes::kMixed;
  job.rounds = 6;
  return job;
}

TEST(Training, AnUnweightedCombineAddsRowsAsTheyAre) {
  for (const LayoutForm& layout : kLayoutForms) {
    if (layout.layout == reference::Layout::kTokenMajor) continue;
    for (const Order order : {Order::kFused, Order::kSplit, Order::kPipelined}) {
      for (const int replicas : {1, 2}) {
        Case job = training_case(layout);
        job.unweighted = true;
        job.order = order;
        job.shape.replicas = replicas;
        ASSERT_TRUE(expect_passes(job));
      }
    }
  }
}

// token_major's rows have been summed by the caller: there is nothing left to weigh.
TEST(Training, TokenMajorRowsAreAddedAsTheyAreEitherWay) {
  const Case job = training_case(kLayoutForms[4]);
  const auto batches = make_batches(job);
  expect_runs(job.shape.num_ranks, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create()) return;
    for (int round = 0; round < job.rounds; ++round) {
      if (!own.dispatch(round)) return;
      own.make_unweighted(round);
      if (!own.combine(round)) return;
    }
  });
}

// Layers that share their routes, or a layer's backward: rows come to the same places, whatever happened in between. Every
// second round has the routes of round 0 and other rows.
TEST(Training, TheSameRoutesAgainPutOtherRowsAtTheSamePlaces) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = training_case(layout);
    const reference::Shape shape = job.shape;
    job.batch = [shape](int round) {
      const std::vector<int64_t> num_tokens = {8, 3, 0, 5};
      const int routes_of = round % 2 == 0 ? 0 : round;
      reference::Batch batch =
          make_batch(shape, reference::Values::kArbitrary, reference::Routes::kMixed, num_tokens, 5, routes_of);
      const reference::Batch other =
          make_batch(shape, reference::Values::kArbitrary, reference::Routes::kMixed, num_tokens, 6, round);
      for (size_t r = 0; r < batch.size(); ++r) batch[r].x = other[r].x;
      return batch;
    };
    const auto batches = make_batches(job);
    expect_runs(job.shape.num_ranks, As::kThreads, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      std::vector<std::byte> first;
      for (int round = 0; round < job.rounds; ++round) {
        if (!own.dispatch(round)) return;  // Also compares every row with the oracle.
        if (round == 0) first = own.places(round);
        if (round % 2 == 0)
          rank.expect(own.places(round) == first, "round " + std::to_string(round) + ": other places");
        if (!own.combine(round)) return;
      }
    });
  }
}

}  // namespace
}  // namespace moeway::multi_rank
