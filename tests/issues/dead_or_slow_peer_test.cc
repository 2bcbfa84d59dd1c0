// A peer that dies, and one that is only slow: the first is noticed at once and named, the second is waited for up to
// the limit. Survivors get an error, let everything go, and can make a new job at once. (Deaths at any moment:
// kill_points_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "multi_rank/board.h"
#include "multi_rank/check.h"
#include "multi_rank/small_round.h"

namespace moeway::multi_rank {
namespace {

constexpr int kRanks = 4;
constexpr int kVictim = 2;
constexpr int kLate = 3;
constexpr int64_t kPatientMs = 20000;
constexpr int64_t kSlackMs = kSanitizer ? 10000 : 1000;

// A rank's way to its end, and that of a rank that is late, so that the others still wait when the end comes. Both
// return in time for the next round where they return at all.
struct Scene {
  std::function<Status(SmallRound&)> victim;
  std::function<Status(SmallRound&)> late = [](SmallRound& small) { return small.run(1); };
};

void die_after_ms(int64_t ms) {
  std::thread([ms] {
    sleep_ms(ms);
    raise(SIGKILL);
  }).detach();
}

// The first call that fails, from round 1 on; a wrong sum fails as well.
Status rounds_until_failure(SmallRound& small) {
  for (int round = 1; round < 1000; ++round)
    if (Status s = small.run(round); !s.ok()) return s;
  return Status();
}

// Everything can be let go at once, and the survivors, without `dead`, make a new job of another world size.
void expect_goes_on(Rank& rank, SmallRound& old, const PrivateDirectory& directory, int dead) {
  const int64_t start = now_ms();
  rank.expect_ok(old.all_to_all().close(), "close");
  rank.expect_ok(rank.communicator().close(), "communicator.close");
  rank.expect(now_ms() - start < kSlackMs, "close took a second or longer");
  const int place = dead >= 0 && rank.rank() > dead ? rank.rank() - 1 : rank.rank();
  const int size = dead >= 0 ? rank.size() - 1 : rank.size();
  Result<Bootstrap> bootstrap = Bootstrap::local(directory.path(), place, size);
  if (!rank.expect_ok(bootstrap.status(), "bootstrap of the next job")) return;
  Result<Communicator> communicator = Communicator::create(std::move(bootstrap).value());
  if (!rank.expect_ok(communicator.status(), "communicator of the next job")) return;
  SmallRound small(size, place);
  if (!rank.expect_ok(small.create(communicator.value(), kPatientMs), "create in the next job")) return;
  for (int round = 0; round < 3; ++round) rank.expect_ok(small.run(round), "round of the next job");
}

void run_death(const Scene& scene) {
  const PrivateDirectory next_job;
  RanksOptions options{kRanks, As::kProcesses, std::chrono::seconds(120)};
  options.may_die = {kVictim};
  const RanksResult result = run_ranks(options, [&](Rank& rank) {
    SmallRound small(kRanks, rank.rank());
    if (!rank.expect_ok(small.create(rank.communicator(), kPatientMs), "create")) return;
    if (!rank.expect_ok(small.run(0), "the first round")) return;
    if (rank.rank() == kVictim) {
      const Status outcome = scene.victim(small);
      rank.fail("it was to die, and got " + outcome.to_string());
      return;
    }
    const int64_t start = now_ms();
    Status failure;
    if (rank.rank() == kLate) failure = scene.late(small);
    if (failure.ok()) failure = rounds_until_failure(small);
    rank.expect_error(failure, MOEWAY_PEER_LOST, {"rank " + std::to_string(kVictim)}, "the call after the death");
    // Long before the limit: a dead process is not waited for.
    rank.expect(now_ms() - start < kPatientMs / 4 + kSlackMs,
                "took " + std::to_string(now_ms() - start) + " ms to be noticed");
    rank.expect(small.all_to_all().status().message() == failure.message(), "status() says something else");
    expect_goes_on(rank, small, next_job, kVictim);
  });
  EXPECT_EQ(result.failures, "");
  EXPECT_THAT(next_job.entries(), testing::IsEmpty());
}

TEST(DeadPeer, BeforeDispatch) {
  run_death({[](SmallRound&) -> Status {
    raise(SIGKILL);
    return {};
  }});
}

TEST(DeadPeer, InDispatch) {
  run_death({[](SmallRound& small) {
               die_after_ms(200);  // It waits for the late rank then.
               return small.run(1);
             },
             [](SmallRound& small) {
               sleep_ms(600);
               return small.dispatch(1);
             }});
}

TEST(DeadPeer, BetweenItsSendAndItsReceive) {
  run_death({[](SmallRound& small) {
    Status s = small.dispatch_send(1);
    raise(SIGKILL);
    return s;
  }});
}

TEST(DeadPeer, BetweenDispatchAndCombine) {
  run_death({[](SmallRound& small) {
    Status s = small.dispatch(1);
    raise(SIGKILL);
    return s;
  }});
}

TEST(DeadPeer, InCombine) {
  run_death({[](SmallRound& small) {
               Status s = small.dispatch(1);
               die_after_ms(200);
               if (s.ok()) s = small.combine();
               return s;
             },
             [](SmallRound& small) {
               Status s = small.dispatch(1);
               sleep_ms(600);
               if (s.ok()) s = small.combine();
               return s;
             }});
}

TEST(DeadPeer, BetweenTheHalvesOfCombine) {
  run_death({[](SmallRound& small) {
    Status s = small.dispatch(1);
    if (s.ok()) s = small.combine_send();
    raise(SIGKILL);
    return s;
  }});
}

TEST(DeadPeer, InClose) {
  for (const bool before : {true, false}) {
    run_death({[before](SmallRound& small) {
      if (before) die_after_ms(0);
      Status s = small.all_to_all().close();
      raise(SIGKILL);
      return s;
    }});
  }
}

struct Stopped {
  std::atomic<pid_t> process;
};

// The victim stands still for `stop_ms` before its dispatch of round 1; then `body` runs on all ranks.
void run_stop(int64_t stop_ms, int64_t limit_ms, const std::function<void(Rank&, SmallRound&, int64_t start)>& body) {
  const Shared<Stopped> stopped;
  expect_runs(kRanks, As::kProcesses, [&](Rank& rank) {
    SmallRound small(kRanks, rank.rank());
    if (!rank.expect_ok(small.create(rank.communicator(), limit_ms), "create")) return;
    if (!rank.expect_ok(small.run(0), "the first round")) return;
    std::thread waker;
    if (rank.rank() == 0) {
      waker = std::thread([&] {
        if (!wait_until([&] { return stopped->process.load() != 0; })) return;
        sleep_ms(stop_ms);
        kill(stopped->process.load(), SIGCONT);
      });
    }
    const int64_t start = now_ms();
    if (rank.rank() == kVictim) {
      stopped->process = getpid();
      raise(SIGSTOP);
    }
    body(rank, small, start);
    if (waker.joinable()) waker.join();
  });
}

TEST(SlowPeer, IsWaitedForWithinTheLimit) {
  run_stop(1500, kPatientMs, [](Rank& rank, SmallRound& small, int64_t start) {
    for (int round = 1; round < 4; ++round) rank.expect_ok(small.run(round), "round " + std::to_string(round));
    rank.expect(now_ms() - start > 1000, "nobody was slow");
  });
}

TEST(SlowPeer, IsNamedAtTheLimitAndNotTakenForDead) {
  constexpr int64_t kLimitMs = kSanitizer ? 2000 : 600;
  const PrivateDirectory next_job;
  run_stop(kLimitMs * 4, kLimitMs, [&](Rank& rank, SmallRound& small, int64_t start) {
    const Status failure = rounds_until_failure(small);
    if (rank.rank() == kVictim) {
      // When it goes on it hears what has happened, and does not wait for its own limit.
      const std::string text = failure.to_string();
      rank.expect(failure.code() == MOEWAY_PEER_LOST || failure.code() == MOEWAY_DEADLINE_EXCEEDED, text);
    } else {
      const int64_t took = now_ms() - start;
      rank.expect_error(failure, MOEWAY_DEADLINE_EXCEEDED,
                        {"rank " + std::to_string(kVictim), "round 2", "dispatch", std::to_string(kLimitMs) + " ms"},
                        "the round without it");
      rank.expect(failure.message().find("ended") == std::string::npos, "taken for dead: " + failure.to_string());
      rank.expect(took >= kLimitMs && took < kLimitMs + kSlackMs, "took " + std::to_string(took) + " ms");
    }
    // The same ranks go on together: nobody has died.
    expect_goes_on(rank, small, next_job, -1);
  });
}

}  // namespace
}  // namespace moeway::multi_rank
