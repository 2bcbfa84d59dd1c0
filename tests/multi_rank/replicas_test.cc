// Replica groups: ranks that hold the same tokens share the sending of them, and all get all sums. The oracle knows who
// sends which token, and so what every row came from.
#include <gtest/gtest.h>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

constexpr Order kOrders[] = {Order::kFused, Order::kSplit, Order::kPipelined};

Case replicated(int num_ranks, int replicas, const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = num_ranks;
  job.shape.replicas = replicas;
  job.shape.num_experts = 11;  // Another number on some ranks.
  job.shape.topk = 4;
  job.shape.hidden = 37;
  job.shape.max_tokens = 13;  // No multiple of any number of replicas.
  layout.apply(job.shape);
  job.shape.output_dtype = reference::DType::kF32;
  job.values = reference::Values::kArbitrary;
  job.routes = reference::Routes::kMixed;
  job.rounds = 4;
  return job;
}

// What the ranks of a group give is the same, bit by bit.
void expect_same_sums_in_groups(const Case& job, As as) {
  const RanksResult result = run_case(job, as);
  ASSERT_EQ(result.failures, "") << "ranks as " << as_name(as) << ": " << describe(job);
  for (int r = 0; r < job.shape.num_ranks; ++r) {
    const int first = r / job.shape.replicas * job.shape.replicas;
    ASSERT_EQ(result.given[static_cast<size_t>(r)], result.given[static_cast<size_t>(first)]) << "rank " << r;
  }
}

TEST(Replicas, AnyNumberThatDividesTheRanksGivesWhatTheReferenceGives) {
  int index = 0;
  for (const int num_ranks : {2, 4, 6, 8}) {
    for (const int replicas : {1, 2, 3, 4, num_ranks}) {
      if (num_ranks % replicas != 0) continue;
      for (const LayoutForm& layout : kLayoutForms) {
        for (const Order order : kOrders) {
          if (kSanitizer && ++index % 5 != 0) continue;
          Case job = replicated(num_ranks, replicas, layout);
          job.order = order;
          job.seed = static_cast<uint64_t>(10 * num_ranks + replicas);
          expect_same_sums_in_groups(job, As::kThreads);
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Replicas, RanksAsProcessesGiveWhatTheReferenceGives) {
  for (const LayoutForm& layout : kLayoutForms) {
    expect_same_sums_in_groups(replicated(4, 2, layout), As::kProcesses);
    expect_same_sums_in_groups(replicated(6, 3, layout), As::kProcesses);
  }
}

TEST(Replicas, NoTokensFewerThanReplicasAndAllOfThem) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = replicated(8, 4, layout);
    const reference::Shape shape = job.shape;
    job.batch = [shape](int round) {
      constexpr int64_t kTokens[][2] = {{0, 1}, {3, 0}, {13, 2}, {4, 13}};
      const auto [a, b] = kTokens[round];
      return make_batch(shape, reference::Values::kArbitrary, reference::Routes::kHoles, {a, a, a, a, b, b, b, b}, 3,
                        round);
    };
    expect_same_sums_in_groups(job, As::kThreads);
  }
}

TEST(Replicas, EveryFormOfExecutionAndAnyDelays) {
  for (const Execution execution : {kFibers, kThreads, kLanes}) {
    for (const LayoutForm& layout : kLayoutForms) {
      Case job = replicated(4, 2, layout);
      job.execution = execution;
      job.max_delay_us = 500;
      job.order = Order::kPipelined;
      job.view = layout.layout == reference::Layout::kTokenMajor;
      expect_same_sums_in_groups(job, As::kThreads);
    }
  }
}

// The tokens of a group lie as those of one rank would that held them alone, and with weights at combine no bit of a sum
// depends on how many ranks there are.
TEST(Replicas, WithWeightsAtCombineTheyChangeNoBit) {
  for (const LayoutForm& layout : {kLayoutForms[1], kLayoutForms[3]}) {
    for (const int replicas : {2, 3}) {
      const Case alone = replicated(2, 1, layout);
      Case job = replicated(2 * replicas, replicas, layout);
      const Case* of_groups = &alone;
      job.batch = [of_groups, replicas](int round) {
        reference::Batch batch;
        const std::vector<reference::Batch> batches = make_batches(*of_groups);
        for (const reference::RankInput& input : batches[static_cast<size_t>(round)])
          batch.insert(batch.end(), static_cast<size_t>(replicas), input);
        return batch;
      };
      const RanksResult expected = run_case(alone, As::kThreads), got = run_case(job, As::kThreads);
      ASSERT_EQ(expected.failures, "");
      ASSERT_EQ(got.failures, "");
      for (size_t r = 0; r < got.given.size(); ++r)
        ASSERT_EQ(got.given[r], expected.given[r / static_cast<size_t>(replicas)]) << "rank " << r;
    }
  }
}

TEST(Replicas, AGroupThatWasGivenDifferentNumbersOfTokensIsAMismatchOnAllRanks) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const bool fused : {false, true}) {
      Case job = replicated(4, 2, layout);
      job.rounds = 1;
      const reference::Shape shape = job.shape;
      job.batch = [shape](int round) {
        reference::Batch batch =
            make_batch(shape, reference::Values::kExact, reference::Routes::kUniform, {5, 5, 13, 13}, 3, round);
        batch[1] = make_input(shape, reference::Values::kExact, 3, round, 1,
                              make_routes(shape, reference::Routes::kUniform, 7, 3));
        return batch;
      };
      const auto batches = make_batches(job);
      expect_runs(4, As::kThreads, [&](Rank& rank) {
        Job own(rank, job, batches);
        if (!own.create()) return;
        const std::vector<std::string> parts = {"ranks 0 and 1 of one replica group", "5 and 7 tokens"};
        const DispatchInput in = own.make_input(0);
        const DispatchOutput out = own.make_output(0);
        Status status;
        if (fused) {
          status = own.all_to_all().dispatch(in, out).status();
        } else {
          const Result<Routing> routing = own.all_to_all().dispatch_send(in);
          if (!rank.expect_ok(routing.status(), "dispatch_send")) return;
          status = own.all_to_all().dispatch_recv(routing.value(), out);
        }
        rank.expect_error(status, MOEWAY_MISMATCH, parts, "dispatch");
      });
    }
  }
}

TEST(Replicas, NeedRoomForTheTokensOfAllGroupsAndNoMore) {
  AllToAllConfig config;
  config.num_experts = 16, config.topk = 4, config.hidden = 512, config.max_tokens = 64;
  config.distinct_experts = 1;
  const AllToAllSizes alone = all_to_all_sizes(config, 0, 8).value();
  config.replicas = 4;
  const AllToAllSizes shared = all_to_all_sizes(config, 0, 8).value();
  EXPECT_EQ(shared.expert_capacity, 2 * 64);
  EXPECT_EQ(shared.max_rows, alone.max_rows / 4);
  EXPECT_LT(shared.heap_bytes, alone.heap_bytes / 2);  // Results take as much as before.
  EXPECT_LT(shared.workspace_bytes, alone.workspace_bytes / 2);
  config.layout = kTokenMajor;
  EXPECT_EQ(all_to_all_sizes(config, 0, 8).value().max_rows, 2 * 64);
}

}  // namespace
}  // namespace moeway::multi_rank
