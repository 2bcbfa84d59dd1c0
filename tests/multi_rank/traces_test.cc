// Routing decisions of real models over eight ranks, in every layout and type.
#include <gtest/gtest.h>

#include <algorithm>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"
#include "multi_rank/trace.h"

namespace moeway::multi_rank {
namespace {

constexpr int kNumRanks = 8;

Case trace_case(const Trace& trace, const LayoutForm& layout, const TokenForm& form) {
  Case job;
  job.shape.num_ranks = kNumRanks;
  job.shape.num_experts = trace.num_experts;
  job.shape.topk = trace.topk;
  job.shape.hidden = 16;
  layout.apply(job.shape);
  form.apply(job.shape);
  job.shape.distinct_experts = true;
  job.shape.max_tokens = 1;
  for (const TraceBatch& batch : trace.batches) job.shape.max_tokens = std::max(job.shape.max_tokens, batch.num_tokens);
  job.values = reference::Values::kArbitrary;
  job.num_warps = 2;
  // Batches are dealt to the ranks in turn; whoever gets none in the last round has no tokens.
  job.rounds = (static_cast<int>(trace.batches.size()) + kNumRanks - 1) / kNumRanks;
  if (kSanitizer) job.rounds = 1;
  job.batch = [shape = job.shape, &trace](int round) {
    reference::Batch inputs;
    for (int rank = 0; rank < kNumRanks; ++rank) {
      const auto index = static_cast<size_t>(round * kNumRanks + rank);
      const TraceBatch& batch = index < trace.batches.size() ? trace.batches[index] : TraceBatch{};
      inputs.push_back(make_input(shape, reference::Values::kArbitrary, 3, round, rank, batch.topk_idx));
      inputs.back().topk_weights = batch.topk_weights;
    }
    return inputs;
  };
  return job;
}

void run_trace(const char* name) {
  const std::string path = std::string(MOEWAY_SOURCE_DIR) + "/../shared/routes/" + name;
  const Trace trace = read_trace(path);
  if (trace.batches.empty()) GTEST_SKIP() << "no real routing decisions, " << path << " is missing";
  int index = 0;
  for (const LayoutForm& layout : kLayoutForms) {
    for (const TokenForm& form : kTokenForms) {
      if (kSanitizer && ++index % 7 != 0) continue;
      ASSERT_TRUE(expect_passes(trace_case(trace, layout, form), As::kThreads));
    }
  }
  ASSERT_TRUE(expect_passes(trace_case(trace, kLayoutForms[0], kTokenForms[0]), As::kProcesses));
}

TEST(Traces, SixtyFourExpertsTopEight) { run_trace("olmoe-1b-7b-gsm8k.jsonl"); }
TEST(Traces, SixtyExpertsTopFourWhichEightRanksDoNotDivide) { run_trace("qwen1.5-moe-a2.7b-gsm8k.jsonl"); }

}  // namespace
}  // namespace moeway::multi_rank
