// The numbers that an object gives about itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"
#include "multi_rank/sanitizers.h"

namespace moeway::multi_rank {
namespace {

// Results that a rank sends back, to each rank that has the token: one per (token, this rank), or one per row where the owner adds.
int64_t expected_result_bytes(const Case& job, const std::vector<reference::Batch>& batches, int rank) {
  const bool at_combine = job.shape.weights == reference::Weights::kAtCombine;
  const bool as_given = at_combine || job.shape.layout == reference::Layout::kTokenMajor;
  const int64_t bytes = job.shape.hidden * dtype_bytes(as_given ? job.shape.row_dtype : job.shape.output_dtype);
  reference::Shape by_token = job.shape;
  by_token.layout = reference::Layout::kTokenMajor;
  int64_t results = 0;
  for (const reference::Batch& batch : batches) {
    const reference::Received received = expected_dispatch(by_token, batch, rank, 0);
    int64_t rows = 0;
    for (const int32_t count : received.num_rows) rows += count;
    results += at_combine ? rows : static_cast<int64_t>(received.tokens.size());
  }
  return results * bytes * job.shape.replicas;  // Each goes to all ranks that have the token.
}

void check_stats(Rank& rank, const Case& job, const std::vector<reference::Batch>& batches, const AllToAll& object) {
  int64_t tokens = 0, routes = 0, bytes = 0, rows = 0;
  for (const reference::Batch& batch : batches) {
    const reference::Traffic traffic =
        expected_traffic(job.shape, batch[static_cast<size_t>(rank.rank())], rank.rank());
    tokens += traffic.tokens_sent;
    routes += traffic.routes_sent;
    bytes += traffic.dispatch_sent_bytes;
    for (const int32_t count : expected_dispatch(job.shape, batch, rank.rank(), 1000).num_rows) rows += count;
  }
  const Result<AllToAllStats> stats = object.stats();
  if (!rank.expect_ok(stats.status(), "stats")) return;
  const AllToAllStats& got = stats.value();
  const auto same = [&](const char* name, int64_t value, int64_t expected) {
    rank.expect(value == expected,
                std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(expected));
  };
  same("num_dispatches", got.num_dispatches, static_cast<int64_t>(batches.size()));
  same("tokens_sent", got.tokens_sent, tokens);
  same("routes_sent", got.routes_sent, routes);
  same("rows_received", got.rows_received, rows);
  same("dispatch_sent_bytes", got.dispatch_sent_bytes, bytes);
  same("combine_sent_bytes", got.combine_sent_bytes, expected_result_bytes(job, batches, rank.rank()));
}

void check_counts(int num_ranks, int replicas) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const TokenForm& form : {kTokenForms[0], kTokenForms[4]}) {
      Case job;
      job.shape.num_ranks = num_ranks;
      job.shape.replicas = replicas;
      job.shape.num_experts = 10;
      job.shape.topk = 4;
      job.shape.hidden = 130;
      layout.apply(job.shape);
      form.apply(job.shape);
      job.shape.output_dtype = reference::DType::kF32;
      job.routes = reference::Routes::kMixed;
      job.rounds = 4;
      const auto batches = make_batches(job);
      expect_runs(num_ranks, As::kThreads, [&](Rank& rank) {
        Job own(rank, job, batches);
        if (!own.create()) return;
        check_stats(rank, job, {}, own.all_to_all());
        for (int round = 0; round < job.rounds; ++round)
          if (!own.dispatch(round) || !own.combine(round)) return;
        check_stats(rank, job, batches, own.all_to_all());
      });
    }
  }
}

TEST(Stats, CountWhatWasMoved) { check_counts(3, 1); }
TEST(Stats, WithReplicasCountAGroupsTokensOnceAndResultsForEachOfIt) { check_counts(4, 2); }
TEST(Stats, TellWhatWentToAndCameFromEachPeer) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job;
    job.shape.num_ranks = 3;
    job.shape.num_experts = 10;
    job.shape.topk = 4;
    layout.apply(job.shape);
    job.routes = reference::Routes::kMixed;
    job.rounds = 3;
    const auto batches = make_batches(job);
    expect_runs(3, As::kThreads, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      for (int round = 0; round < job.rounds; ++round)
        if (!own.dispatch(round) || !own.combine(round)) return;
      const auto stats = own.all_to_all().peer_stats(3);
      if (!rank.expect_ok(stats.status(), "peer_stats")) return;
      // Which tokens went where, and how many results each takes back.
      reference::Shape by_token = job.shape;
      by_token.layout = reference::Layout::kTokenMajor;
      int64_t sent[3][3] = {}, results[3][3] = {};
      for (const reference::Batch& batch : batches) {
        for (int to = 0; to < 3; ++to) {
          const reference::Received received = expected_dispatch(by_token, batch, to, 0);
          for (const reference::TokenRow& row : received.tokens) {
            ++sent[row.source][to];
            const auto first = received.topk_idx.begin() + row.position * job.shape.topk;
            const auto routes = job.shape.topk - std::count(first, first + job.shape.topk, -1);
            results[to][row.source] += job.shape.weights == reference::Weights::kAtCombine ? routes : 1;
          }
        }
      }
      const auto same = [&](const char* name, int peer, int64_t value, int64_t expected) {
        rank.expect(value == expected, std::string(name) + " of rank " + std::to_string(peer) + " is " +
                                           std::to_string(value) + ", expected " + std::to_string(expected));
      };
      const bool reduced =
          job.shape.weights == reference::Weights::kAtDispatch && job.shape.layout != reference::Layout::kTokenMajor;
      const int64_t result_bytes =
          job.shape.hidden * dtype_bytes(reduced ? job.shape.output_dtype : job.shape.row_dtype);
      const int me = rank.rank();
      for (int peer = 0; peer < 3; ++peer) {
        const PeerStats& got = stats.value()[static_cast<size_t>(peer)];
        same("tokens_sent", peer, got.tokens_sent, sent[me][peer]);
        same("tokens_received", peer, got.tokens_received, sent[peer][me]);
        same("dispatch_sent_bytes", peer, got.dispatch_sent_bytes, sent[me][peer] * job.shape.row_bytes());
        same("dispatch_received_bytes", peer, got.dispatch_received_bytes, sent[peer][me] * job.shape.row_bytes());
        same("combine_sent_bytes", peer, got.combine_sent_bytes, results[me][peer] * result_bytes);
      }
      rank.expect(own.all_to_all().peer_stats(2).status().code() == MOEWAY_INVALID_ARGUMENT, "2 of 3 ranks");
    });
  }
}

TEST(Stats, TellHowLongEachPeerWasWaitedFor) {
  for (const Execution execution : {kFibers, kThreads, kLanes}) {
    Case job;
    job.shape.num_ranks = 3;
    job.shape.num_experts = 6;
    job.rounds = 2;
    job.order = Order::kSplit;
    job.execution = execution;
    job.late_rank = 2;
    job.late_us = kSanitizer ? 500'000 : 200'000;
    const auto batches = make_batches(job);
    expect_runs(3, As::kThreads, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      const auto start = std::chrono::steady_clock::now();
      for (int round = 0; round < job.rounds; ++round)
        if (!own.dispatch(round) || !own.combine(round)) return;
      const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - start;
      const auto stats = own.all_to_all().peer_stats(3).value();
      int64_t sum = 0;
      for (const PeerStats& peer : stats) sum += peer.waited_ns;
      rank.expect(sum <= took.count(), "waited longer than there was time");
      if (rank.rank() == 2) return;
      // It came four times that late; on a busy machine this rank does, too.
      rank.expect(stats[2].waited_ns > 100'000'000, "waited " + std::to_string(stats[2].waited_ns) + " ns for rank 2");
      rank.expect(stats[static_cast<size_t>(rank.rank())].waited_ns < stats[2].waited_ns, "waited for itself");
    });
  }
}

TEST(Stats, ATokenIsSentOncePerRankHoweverManyOfItsExpertsLiveThere) {
  Case job;
  job.shape.num_ranks = 2;
  job.shape.num_experts = 8;
  job.shape.topk = 4;
  job.rounds = 1;
  job.batch = [shape = job.shape](int) {
    // Four experts of one rank for every token.
    return reference::Batch{make_input(shape, reference::Values::kExact, 1, 0, 0, {4, 5, 6, 7, 4, 5, 6, 7}),
                            make_input(shape, reference::Values::kExact, 1, 0, 1, {0, 1, 2, 7})};
  };
  const auto batches = make_batches(job);
  expect_runs(2, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create() || !own.dispatch(0) || !own.combine(0)) return;
    const AllToAllStats stats = own.all_to_all().stats().value();
    rank.expect(stats.tokens_sent == 2, "tokens_sent is " + std::to_string(stats.tokens_sent));
    rank.expect(stats.routes_sent == (rank.rank() == 0 ? 8 : 4), "routes_sent");
  });
}

}  // namespace
}  // namespace moeway::multi_rank
