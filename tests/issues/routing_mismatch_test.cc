// combine uses the routing that its dispatch had, which the handle stands for: the caller cannot give another one by
// mistake, and a handle of another dispatch is told apart.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

// Different T on each rank, K < E, weights that are not 1.
Case mismatch_case(const LayoutForm& layout, uint64_t seed) {
  Case job;
  job.shape.num_ranks = 3;
  job.shape.num_experts = 9;
  job.shape.topk = 3;
  job.shape.hidden = 10;
  job.shape.max_tokens = 8;
  layout.apply(job.shape);
  job.rounds = 6;
  const reference::Shape shape = job.shape;
  job.batch = [shape, seed](int round) {
    return make_batch(shape, reference::Values::kArbitrary, reference::Routes::kUniform, {3, 8, 5}, seed, round);
  };
  job.values = reference::Values::kArbitrary;
  return job;
}

void expect_refused(Rank& rank, const Case& job, Job& own, Routing routing, const char* what) {
  const Status status = job.shape.weights == reference::Weights::kAtDispatch
                            ? own.all_to_all().combine(routing, own.rows(1), own.y(1))
                            : own.all_to_all().combine(routing, own.rows(1), own.combine_weights(1), own.y(1));
  rank.expect_error(status, MOEWAY_WRONG_STATE, {}, what);
}

TEST(RoutingMismatch, OnlyTheHandleOfThisDispatchIsTaken) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const As as : {As::kThreads, As::kProcesses}) {
      const Case job = mismatch_case(layout, 81);
      const Case other_job = mismatch_case(layout, 82);
      const auto batches = make_batches(job);
      const auto other_batches = make_batches(other_job);
      expect_runs(3, as, [&](Rank& rank) {
        Job own(rank, job, batches);
        Job other(rank, other_job, other_batches);
        if (!own.create() || !other.create()) return;
        if (!own.dispatch(0) || !own.combine(0) || !other.dispatch(0) || !own.dispatch(1)) return;
        expect_refused(rank, job, own, own.routing(0), "of an earlier round");
        expect_refused(rank, job, own, other.routing(0), "of another object");
        if (!own.combine(1)) return;
        expect_refused(rank, job, own, own.routing(1), "used twice");
        if (!own.dispatch(2) || !own.combine(2)) return;
        other.combine(0);
      });
    }
  }
}

// Handles of another communicator: the same ranks, met twice.
TEST(RoutingMismatch, AHandleOfAnotherCommunicatorIsRefused) {
  const Case job = mismatch_case(kLayoutForms[0], 83);
  const auto batches = make_batches(job);
  const ThreadGroup group(3);
  expect_runs(3, As::kThreads, [&](Rank& rank) {
    Result<Bootstrap> bootstrap = Bootstrap::threads(group, rank.rank());
    if (!rank.expect_ok(bootstrap.status(), "bootstrap")) return;
    Result<Communicator> second = Communicator::create(std::move(bootstrap).value(), place::communicator_options());
    if (!rank.expect_ok(second.status(), "communicator")) return;
    Result<AllToAll> there = AllToAll::create(second.value(), make_config(job));
    if (!rank.expect_ok(there.status(), "create")) return;
    Job own(rank, job, batches);
    if (!own.create() || !own.dispatch(0)) return;
    const Status status = there.value().combine(own.routing(0), own.rows(0), own.y(0));
    rank.expect_error(status, MOEWAY_WRONG_STATE, {"rout"}, "combine of the other communicator's object");
    own.combine(0);
  });
}

// The one tensor that combine takes besides the rows is weights. Those that belong to the received tokens, as a caller
// might take by mistake, have another number of rows.
TEST(RoutingMismatch, WeightsOfOtherTokensAreRefused) {
  for (const LayoutForm& layout : {kLayoutForms[1], kLayoutForms[3]}) {
    const Case job = mismatch_case(layout, 84);
    const auto batches = make_batches(job);
    expect_runs(3, As::kThreads, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create() || !own.dispatch(0)) return;
      const int64_t tokens = own.y(0).shape[0];
      for (const int64_t rows : {tokens - 1, tokens + 1, int64_t{24}, int64_t{0}}) {
        Tensor weights = own.combine_weights(0);
        weights.shape[0] = rows;
        rank.expect_error(own.all_to_all().combine(own.routing(0), own.rows(0), weights, own.y(0)),
                          MOEWAY_INVALID_ARGUMENT, {"topk_weights", std::to_string(rows), std::to_string(tokens)},
                          "weights of other tokens");
      }
      own.combine(0);
    });
  }
}

}  // namespace
}  // namespace moeway::multi_rank
