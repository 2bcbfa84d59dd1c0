// Same inputs, same bits: whatever the launch geometry, the execution form, the kind of ranks and the timing. Values
// are such that another order or another rounding of a sum would show.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case base_case(const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = 3;
  job.shape.num_experts = 11;
  job.shape.topk = 4;
  job.shape.hidden = 70;
  job.shape.max_tokens = 23;
  layout.apply(job.shape);
  job.shape.output_dtype = reference::DType::kF32;
  job.values = reference::Values::kArbitrary;
  job.routes = reference::Routes::kMixed;
  job.rounds = 3;
  job.seed = 77;
  return job;
}

std::vector<std::vector<std::byte>> bits(const Case& job, As as) {
  const RanksResult result = run_case(job, as);
  EXPECT_EQ(result.failures, "") << "ranks as " << as_name(as) << ": " << describe(job);
  return result.given;
}

// Each variation is also compared with the oracle, byte by byte, inside run_case.
void run_variations(Execution execution, int most_warps) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = base_case(layout);
    if (execution == kLanes) {  // Each warp is 32 fibers, so this takes its time.
      job.shape.num_ranks = 2;
      job.shape.max_tokens = 11;
      job.rounds = 1;
    }
    job.num_warps = 1;
    const auto expected = bits(job, As::kThreads);
    job.execution = execution;
    for (int warps = 1; warps <= most_warps; warps += kSanitizer ? 5 : 1) {
      job.num_warps = warps;
      job.order = warps % 2 == 0 ? Order::kSplit : Order::kFused;
      ASSERT_EQ(bits(job, As::kThreads), expected) << describe(job);
    }
  }
}

TEST(SameBits, FromOneToSeventeenFibers) { run_variations(kFibers, 17); }
TEST(SameBits, FromOneToSeventeenThreads) { run_variations(kThreads, 17); }
TEST(SameBits, FromOneToSeventeenWarpsOfLanes) { run_variations(kLanes, 17); }

TEST(SameBits, RanksAsThreadsAndAsProcesses) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const Execution execution : {kFibers, kThreads, kLanes}) {
      Case job = base_case(layout);
      job.execution = execution;
      ASSERT_EQ(bits(job, As::kThreads), bits(job, As::kProcesses)) << describe(job);
    }
  }
}

TEST(SameBits, UnderAnyDelays) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = base_case(layout);
    job.rounds = 6;
    const auto expected = bits(job, As::kThreads);
    for (int attempt = 0; attempt < scaled(8); ++attempt) {
      Case delayed = job;
      delayed.max_delay_us = 3000;
      delayed.order = attempt % 2 == 0 ? Order::kPipelined : Order::kSplit;
      ASSERT_EQ(bits(delayed, attempt % 4 == 0 ? As::kProcesses : As::kThreads), expected) << describe(delayed);
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
