// -1 is no route: no row and no contribution, wherever it stands and whatever its weight. Any other id outside the
// experts is an error, and nobody hangs.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case routes_case(const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = 4;
  job.shape.num_experts = 8;
  job.shape.topk = 4;
  job.shape.hidden = 20;
  job.shape.max_tokens = 6;
  layout.apply(job.shape);
  job.rounds = 1;
  // -1 first, last, alternating, everywhere but once, everywhere; rank 3 has nothing else. NaN, infinity and 1e30 are
  // the weights there. Expert 7, the last one, has no row: what lands there by mistake shows in its count.
  job.batch = [shape = job.shape](int round) {
    const std::vector<int64_t> some = {-1, 0,  3, 5,  1,  2,  6, -1, -1, 4,  -1, 0,
                                       5,  -1, 2, -1, -1, -1, 3, -1, -1, -1, -1, -1};
    reference::Batch batch;
    for (int rank = 0; rank < 4; ++rank) {
      const std::vector<int64_t> topk_idx = rank == 3 ? std::vector<int64_t>(24, -1) : some;
      batch.push_back(make_input(shape, reference::Values::kExact, 71, round, rank, topk_idx));
    }
    return batch;
  };
  return job;
}

TEST(RouteValues, MinusOneIsNoRouteWhereverItStands) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const Ids ids : {Ids::kI64, Ids::kI32}) {
      Case job = routes_case(layout);
      job.ids = ids;
      ASSERT_TRUE(expect_passes(job));
      ASSERT_TRUE(expect_passes(job, As::kProcesses));
    }
  }
}

TEST(RouteValues, ATokenWithoutRoutesGivesExactZeros) {
  for (const LayoutForm& layout : kLayoutForms) {
    const Case job = routes_case(layout);
    const RanksResult result = run_case(job, As::kThreads);
    ASSERT_EQ(result.failures, "");
    const auto row = static_cast<size_t>(job.shape.hidden * 2);
    for (const std::vector<std::byte>& y : result.given) {
      ASSERT_EQ(y.size(), 6 * row);
      EXPECT_TRUE(std::all_of(y.end() - static_cast<std::ptrdiff_t>(row), y.end(),
                              [](std::byte byte) { return byte == std::byte{0}; }));
    }
  }
}

template <class Index>
void spoil_and_call(Rank& rank, Job& own, Index id) {
  for (const int64_t place : {0, 7, 23}) {
    DispatchInput in = own.make_input(0);
    static_cast<Index*>(in.topk_idx.data)[place] = id;
    const std::string where = "topk_idx[" + std::to_string(place / 4) + ", " + std::to_string(place % 4) + "]";
    rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT,
                      {where, std::to_string(id), "-1", "7"}, "dispatch_send");
    const DispatchOutput out = own.make_output(0);
    rank.expect_error(own.all_to_all().dispatch(in, out).status(), MOEWAY_INVALID_ARGUMENT, {where, std::to_string(id)},
                      "dispatch");
  }
}

TEST(RouteValues, AnythingElseIsAnErrorAndTheRightCallThatFollowsWorks) {
  MOEWAY_SKIP_ON_DEVICES("they go on with the round and tell it afterwards: tests/gpu/failure_test.cc");
  for (const LayoutForm& layout : kLayoutForms) {
    for (const Ids ids : {Ids::kI64, Ids::kI32}) {
      Case job = routes_case(layout);
      job.ids = ids;
      const auto batches = make_batches(job);
      expect_runs(4, As::kThreads, [&](Rank& rank) {
        Job own(rank, job, batches);
        if (!own.create()) return;
        for (const int32_t id : {8, 9, -2, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
          if (ids == Ids::kI32) spoil_and_call<int32_t>(rank, own, id);
          if (ids == Ids::kI64) spoil_and_call<int64_t>(rank, own, id);
        }
        if (ids == Ids::kI64) {
          // Right if only the lower half is looked at.
          spoil_and_call<int64_t>(rank, own, (int64_t{1} << 32) + 3);
          spoil_and_call<int64_t>(rank, own, std::numeric_limits<int64_t>::min());
          spoil_and_call<int64_t>(rank, own, std::numeric_limits<int64_t>::max());
        }
        if (own.dispatch(0)) own.combine(0);
      });
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
