// A fast rank's next call must not overwrite what a slow rank still reads. No barrier anywhere; the data of each round
// are its own, so what is late or early shows.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case skewed_case(int num_ranks, const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = num_ranks;
  job.shape.num_experts = 2 * num_ranks + 1;
  job.shape.topk = 3;
  job.shape.hidden = 40;
  job.shape.max_tokens = 10;
  layout.apply(job.shape);
  job.num_warps = 3;
  return job;
}

void run_sleeps(As as) {
  for (int num_ranks = 2; num_ranks <= 4; ++num_ranks) {
    for (const LayoutForm& layout : kLayoutForms) {
      for (const Order order : {Order::kFused, Order::kSplit, Order::kPipelined}) {
        Case job = skewed_case(num_ranks, layout);
        job.order = order;
        job.rounds = scaled(60);
        job.max_delay_us = 2000;
        job.seed = static_cast<uint64_t>(num_ranks);
        ASSERT_TRUE(expect_passes(job, as));
      }
    }
  }
}

TEST(SlowRankOverwrite, ThreadsThatSleepAnywhere) { run_sleeps(As::kThreads); }
TEST(SlowRankOverwrite, ProcessesThatSleepAnywhere) { run_sleeps(As::kProcesses); }

// Without a sleep the ranks run as far ahead as they may.
TEST(SlowRankOverwrite, FiveHundredRoundsAtFullSpeed) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    for (const LayoutForm& layout : kLayoutForms) {
      Case job = skewed_case(3, layout);
      job.shape.max_tokens = 4;
      job.rounds = scaled(500);
      job.order = Order::kPipelined;
      ASSERT_TRUE(expect_passes(job, as));
    }
  }
}

TEST(SlowRankOverwrite, OneRankIsAlwaysLate) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    for (const int combine_every : {1, 0}) {
      Case job = skewed_case(4, kLayoutForms[0]);
      job.combine_every = combine_every;  // Without combine, only the counts hold the others back.
      job.rounds = 12;
      job.late_rank = 2;
      job.late_us = 20000;
      ASSERT_TRUE(expect_passes(job, as));
      job.order = Order::kSplit;
      ASSERT_TRUE(expect_passes(job, as));
    }
  }
}

// As two micro-batches do.
TEST(SlowRankOverwrite, TwoObjectsInTurn) {
  Case job = skewed_case(3, kLayoutForms[0]);
  job.rounds = scaled(60);
  job.max_delay_us = 1500;
  Case second = job;
  second.seed = 2;
  const auto batches = make_batches(job);
  const auto second_batches = make_batches(second);
  for (const As as : {As::kThreads, As::kProcesses}) {
    expect_runs(3, as, [&](Rank& rank) {
      Job a(rank, job, batches);
      Job b(rank, second, second_batches);
      if (!a.create() || !b.create()) return;
      for (int round = 0; round < job.rounds; ++round) {
        if (!a.dispatch_send(round) || !b.dispatch_send(round) || !a.dispatch_recv(round) || !a.combine_send(round))
          return;
        if (!b.dispatch_recv(round) || !b.combine_send(round) || !a.combine_recv(round) || !b.combine_recv(round))
          return;
      }
    });
  }
}

}  // namespace
}  // namespace moeway::multi_rank
