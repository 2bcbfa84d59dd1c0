// Combine onto what y holds, as for shared experts.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

// kMixed has tokens without a route: they leave y as it is, to the sign of a zero.
TEST(CombineAdd, StartsSumsFromWhatYHoldsAndRoundsOnce) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const Order order : {Order::kFused, Order::kSplit}) {
      for (const reference::DType output : kSumTypes) {
        Case job;
        job.shape.num_ranks = 3;
        job.shape.num_experts = 7;
        job.shape.topk = 3;
        job.shape.hidden = 133;
        layout.apply(job.shape);
        job.shape.output_dtype = output;
        job.routes = reference::Routes::kMixed;
        job.values = order == Order::kFused ? reference::Values::kArbitrary : reference::Values::kExact;
        job.views = order == Order::kFused ? Views::kDense : Views::kStrided;
        job.order = order;
        job.add = true;
        if (!expect_passes(job)) return;
      }
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
