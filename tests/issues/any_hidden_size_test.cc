// Every hidden size works in every type: no multiple of 8, 16, 32 or 128 is assumed, no tail is left out, no row of an
// odd slot is misaligned.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

constexpr int64_t kHiddens[] = {1,   3,   7,   8,   16,  24,  31,   33,   64,   100,
                                127, 129, 255, 257, 511, 513, 1000, 2880, 4104, 7168};

void run(const LayoutForm& layout) {
  int index = 0;
  for (const int64_t hidden : kHiddens) {
    for (const TokenForm& given : kTokenForms) {
      if (kSanitizer && ++index % 7 != 0) continue;
      TokenForm form = given;
      if (form.token_bytes > 0) form.token_bytes = hidden;
      Case job;
      job.shape.num_ranks = 2;
      job.shape.num_experts = 5;
      job.shape.topk = 2;
      job.shape.hidden = hidden;
      job.shape.max_tokens = 5;  // An odd number: odd slots are used.
      job.shape.distinct_experts = true;
      layout.apply(job.shape);
      form.apply(job.shape);
      // Rows and sums in all three types over the loop.
      job.shape.row_dtype = kSumTypes[index % 3];
      job.shape.output_dtype = kSumTypes[hidden % 3];
      job.tokens = reference::Tokens::kFull;
      job.values = reference::Values::kArbitrary;
      job.views = Views::kStrided;  // Base addresses off by one to three elements.
      job.rounds = 1;
      job.num_warps = 3;
      job.seed = static_cast<uint64_t>(hidden);
      ASSERT_TRUE(expect_passes(job));
      if (!kSanitizer) ++index;
    }
  }
}

TEST(AnyHiddenSize, PaddedWithWeightsAtDispatch) { run(kLayoutForms[0]); }
TEST(AnyHiddenSize, PackedWithWeightsAtCombine) { run(kLayoutForms[3]); }
TEST(AnyHiddenSize, TokenMajor) { run(kLayoutForms[4]); }

TEST(AnyHiddenSize, OpaqueTokensAndScalesOfAnySize) {
  for (const int64_t token_bytes : {1, 2, 3, 15, 16, 17, 31, 63, 65, 1001}) {
    for (const int64_t scale_bytes : {1, 2, 5, 16, 33}) {
      if (kSanitizer && (token_bytes + scale_bytes) % 3 != 0) continue;
      Case job;
      job.shape.dispatch_dtype = reference::DType::kBytes;
      job.shape.token_bytes = token_bytes;
      job.shape.scales = reference::Scales::kBytes;
      job.shape.scale_bytes = scale_bytes;
      job.shape.hidden = 19;
      job.views = Views::kStrided;
      ASSERT_TRUE(expect_passes(job));
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
