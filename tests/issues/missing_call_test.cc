// A rank that does not make a call that the others make: a bounded wait, then an error that names the rank and the
// round; the object is done for, everything can be closed, and the communicator goes on.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTimeoutMs = kSanitizer ? 2000 : 700;
// Beyond the limit of a wait: for what a loaded machine takes to notice.
constexpr int64_t kSlackMs = kSanitizer ? 10000 : 3000;

Case missing_case() {
  Case job;
  job.shape.num_ranks = 4;
  job.shape.num_experts = 8;
  job.shape.topk = 3;
  job.shape.max_tokens = 6;
  job.tokens = reference::Tokens::kFull;
  job.rounds = 6;
  job.timeout_ms = kTimeoutMs;
  return job;
}

// The call ends in time, with an error that says all of `texts`; from then on every call gives that same error.
void expect_ends(Rank& rank, Job& own, int round, const std::vector<std::string>& texts,
                 const std::function<Status()>& call) {
  const auto start = Clock::now();
  const Status status = call();
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
  rank.expect(took < kTimeoutMs + kSlackMs, "took " + std::to_string(took) + " ms");
  const bool code = status.code() == MOEWAY_DEADLINE_EXCEEDED || status.code() == MOEWAY_PEER_LOST ||
                    status.code() == MOEWAY_MISMATCH;
  if (!rank.expect(code, "expected a failed wait, got " + status.to_string())) return;
  rank.expect_error(status, status.code(), texts, "the failed call");
  const auto same = [&](const Status& later, const char* what) {
    rank.expect(later.code() == status.code() && later.message() == status.message(),
                std::string(what) + ": expected " + status.to_string() + ", got " + later.to_string());
  };
  same(own.all_to_all().status(), "status");
  same(own.all_to_all().dispatch_send(own.make_input(round)).status(), "dispatch_send after the failure");
  same(own.all_to_all().dispatch_recv(own.routing(round), own.make_output(round)), "dispatch_recv after the failure");
  same(own.all_to_all().combine(own.routing(round), own.rows(round), own.y(round)), "combine after the failure");
}

Status dispatch(Job& own, int round) {
  const DispatchInput in = own.make_input(round);
  const DispatchOutput out = own.make_output(round);
  return own.all_to_all().dispatch(in, out).status();
}

// All close; then the communicator makes a new object that works.
void expect_goes_on(Rank& rank, Job& own, const Case& job, const std::vector<reference::Batch>& batches) {
  rank.expect_ok(own.all_to_all().close(), "close");
  Job again(rank, job, batches);
  if (again.create() && again.dispatch(0)) again.combine(0);
}

template <class Body>
void run(Body body) {
  const Case job = missing_case();
  const auto batches = make_batches(job);
  for (const As as : {As::kThreads, As::kProcesses}) {
    expect_runs(4, as, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (!own.create()) return;
      body(rank, own);
      expect_goes_on(rank, own, job, batches);
    });
  }
}

bool rounds(Job& own, int count) {
  for (int round = 0; round < count; ++round)
    if (!own.dispatch(round) || !own.combine(round)) return false;
  return true;
}

TEST(MissingCall, TheRankThatSkipsTheFifthCallIsNamed) {
  run([](Rank& rank, Job& own) {
    if (!rounds(own, 4)) return;
    if (rank.rank() == 2) {
      // Idle, but there: it must not be taken for dead.
      std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs + 300));
      return;
    }
    expect_ends(rank, own, 4, {"rank 2", "round 5", "dispatch"}, [&] { return dispatch(own, 4); });
  });
}

TEST(MissingCall, TheDeadlineSaysWhatWasExpectedAndSeen) {
  run([](Rank& rank, Job& own) {
    if (!rounds(own, 2)) return;
    if (rank.rank() == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs + 300));
      return;
    }
    const auto start = Clock::now();
    const Status status = dispatch(own, 2);
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
    rank.expect(took >= kTimeoutMs, "the wait ended before its limit, after " + std::to_string(took) + " ms");
    rank.expect_error(status, MOEWAY_DEADLINE_EXCEEDED,
                      {"rank " + std::to_string(rank.rank()), "rank 3", "dispatch", "expected round 3", "seen",
                       std::to_string(kTimeoutMs) + " ms"},
                      "dispatch");
  });
}

TEST(MissingCall, ARankThatSkipsCombineIsNamed) {
  run([](Rank& rank, Job& own) {
    if (!rounds(own, 1) || !own.dispatch(1)) return;
    if (rank.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs + 300));
      return;
    }
    const Tensor y = own.y(1);
    expect_ends(rank, own, 1, {"rank 1", "round 2", "combine"}, [&] { return own.combine_into(1, y); });
  });
}

TEST(MissingCall, ARankThatCombinesWhereOthersDispatchEndsInErrorsEverywhere) {
  run([](Rank& rank, Job& own) {
    if (!rounds(own, 1) || !own.dispatch(1)) return;
    if (rank.rank() == 2) {
      const Tensor y = own.y(1);
      expect_ends(rank, own, 1, {"round 2", "combine"}, [&] { return own.combine_into(1, y); });
    } else {
      expect_ends(rank, own, 2, {"rank 2", "round 3", "dispatch"}, [&] { return dispatch(own, 2); });
    }
  });
}

TEST(MissingCall, ARankWhoseArgumentsAreRefusedIsNamedByTheOthers) {
  run([](Rank& rank, Job& own) {
    if (!rounds(own, 1)) return;
    if (rank.rank() == 3) {
      DispatchInput in = own.make_input(1);
      in.x.dtype = kF32;
      rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT, {"x", "f32", "bf16"},
                        "dispatch_send");
      // It gives up; the others hear nothing of it.
      std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs + 300));
      return;
    }
    expect_ends(rank, own, 1, {"rank 3", "round 2"}, [&] { return dispatch(own, 1); });
  });
}

TEST(MissingCall, ThreeCallsWhereOthersMakeFour) {
  run([](Rank& rank, Job& own) {
    if (!rounds(own, 3)) return;
    if (rank.rank() == 1) {
      rank.expect_ok(own.all_to_all().close(), "close");
      return;
    }
    // Noticed before the limit: rank 1 has said goodbye.
    expect_ends(rank, own, 3, {"rank 1", "round 4", "closed"}, [&] { return dispatch(own, 3); });
  });
}

TEST(MissingCall, AProcessThatEndsIsNoticedBeforeTheDeadline) {
  Case job = missing_case();
  job.timeout_ms = 30000;
  const auto batches = make_batches(job);
  expect_runs(4, As::kProcesses, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create() || !rounds(own, 2)) return;
    if (rank.rank() == 2) return;  // Leaves without a word to anybody, and its process ends.
    const auto start = Clock::now();
    const Status status = dispatch(own, 2);
    rank.expect_error(status, MOEWAY_PEER_LOST, {"rank 2"}, "dispatch");
    rank.expect(Clock::now() - start < std::chrono::seconds(kSanitizer ? 15 : 5), "took 5 s or longer");
  });
}

TEST(MissingCall, ARankThatIsOnlySlowIsWaitedFor) {
  Case job = missing_case();
  job.timeout_ms = 20000;
  job.late_rank = 2;
  job.late_us = 400000;
  job.rounds = 1;
  for (const As as : {As::kThreads, As::kProcesses}) ASSERT_TRUE(expect_passes(job, as));
}

// T * K / L rounds to 0 here; nothing may be derived from it.
TEST(MissingCall, OneTokenOnOneRankAndManyExpertsIsNoReasonToStayAway) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job;
    job.shape.num_ranks = 4;
    job.shape.num_experts = 64;
    job.shape.topk = 2;
    job.shape.max_tokens = 8;
    layout.apply(job.shape);
    job.rounds = 4;
    job.batch = [shape = job.shape](int round) {
      std::vector<int64_t> tokens(4, 0);
      tokens[static_cast<size_t>(round)] = 1;
      return make_batch(shape, reference::Values::kExact, reference::Routes::kUniform, tokens, 98, round);
    };
    ASSERT_TRUE(expect_passes(job));
  }
}

}  // namespace
}  // namespace moeway::multi_rank
