// Ids of 32 and of 64 bits give the same bits, also mixed over the ranks; every other type is refused before anything is
// sent, and so are weights that are not float32.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

// More experts than a byte can count.
Case types_case(const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = 2;
  job.shape.num_experts = 300;
  job.shape.topk = 4;
  job.shape.hidden = 12;
  job.shape.max_tokens = 20;
  job.shape.distinct_experts = true;
  layout.apply(job.shape);
  job.values = reference::Values::kArbitrary;
  job.routes = reference::Routes::kHoles;
  job.seed = 61;
  return job;
}

TEST(IndexTypes, GiveTheSameBits) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const Views views : {Views::kDense, Views::kStrided}) {
      Case job = types_case(layout);
      job.views = views;
      std::vector<std::vector<std::vector<std::byte>>> bits;
      for (const Ids ids : {Ids::kI64, Ids::kI32, Ids::kPerRank}) {
        job.ids = ids;
        const RanksResult result = run_case(job, As::kThreads);
        ASSERT_EQ(result.failures, "") << describe(job);
        bits.push_back(result.given);
      }
      ASSERT_EQ(bits[0], bits[1]);
      ASSERT_EQ(bits[0], bits[2]);
    }
  }
}

TEST(IndexTypes, OtherTypesAreRefusedAndNothingIsLost) {
  for (const LayoutForm& layout : kLayoutForms) {
    const Case job = types_case(layout);
    const auto batches = make_batches(job);
    expect_runs(2, As::kThreads, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      for (const DType dtype : {kF32, kBf16, kF16, kF8E4M3, kUe8m0, kBytes}) {
        DispatchInput in = own.make_input(0);
        in.topk_idx.dtype = dtype;
        rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT,
                          {"topk_idx", moeway_dtype_name(dtype), "i32", "i64"}, "ids");
      }
      const bool at_dispatch = job.shape.weights == reference::Weights::kAtDispatch;
      for (const DType dtype : {kBf16, kF16, kI32, kI64, kBytes}) {
        if (!at_dispatch) break;
        DispatchInput in = own.make_input(0);
        in.topk_weights.dtype = dtype;
        rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT,
                          {"topk_weights", moeway_dtype_name(dtype), "f32"}, "weights at dispatch");
      }
      if (!own.dispatch(0)) return;
      for (const DType dtype : {kBf16, kF16, kI32, kI64, kBytes}) {
        if (at_dispatch) break;
        Tensor weights = own.combine_weights(0);
        weights.dtype = dtype;
        rank.expect_error(own.all_to_all().combine(own.routing(0), own.rows(0), weights, own.y(0)),
                          MOEWAY_INVALID_ARGUMENT, {"topk_weights", moeway_dtype_name(dtype), "f32"},
                          "weights at combine");
      }
      own.combine(0);
    });
  }
}

}  // namespace
}  // namespace moeway::multi_rank
