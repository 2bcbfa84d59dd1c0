// The execution contract in its host forms: what each operation promises.
#include "exec/host/grid.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace moeway::exec {
namespace {

class Nobody final : public PeerWatch {
 public:
  PeerWord word(int) const override { return word_; }
  bool lost(int) const override { return lost_; }
  PeerWord word_ = PeerWord::kRunning;
  bool lost_ = false;
};

struct Form {
  HostForm form;
  int num_teams;
  const char* name;
};

// A wait for one signal.
template <class Read>
bool wait_for(const HostTeam& team, const WaitSite& site, uint64_t expected, Read read) {
  return team.poll([&] { return read() == expected; }, [&] { return Missing{site, expected, read()}; });
}

class HostGridTest : public testing::TestWithParam<Form> {
 protected:
  std::unique_ptr<HostGrid> make(size_t scratch_bytes = 0, uint64_t perturb_seed = 0) {
    return HostGrid::make({GetParam().form, GetParam().num_teams, scratch_bytes, perturb_seed});
  }
  LaunchControl control(std::chrono::milliseconds timeout = std::chrono::seconds(20)) { return {timeout, nobody_}; }
  Nobody nobody_;
};

INSTANTIATE_TEST_SUITE_P(Forms, HostGridTest,
                         testing::Values(Form{HostForm::kFibers, 1, "Fiber"}, Form{HostForm::kFibers, 7, "Fibers"},
                                         Form{HostForm::kThreads, 1, "Thread"}, Form{HostForm::kThreads, 4, "Threads"},
                                         Form{HostForm::kLanes, 3, "Lanes"}),
                         [](const auto& form) { return form.param.name; });

TEST_P(HostGridTest, EveryTeamRunsOncePerLaunch) {
  const auto grid = make();
  LaunchControl launch = control();
  std::vector<std::atomic<int>> runs(static_cast<size_t>(GetParam().num_teams));
  for (int i = 0; i < 3; ++i) {
    grid->launch([&](const HostTeam& team) { team.leader([&] { runs[static_cast<size_t>(team.id())].fetch_add(1); }); },
                 launch);
  }
  for (const auto& count : runs) EXPECT_EQ(count.load(), 3);
}

TEST_P(HostGridTest, LanesCoverEveryIndexOnceAndAddAddsThemUp) {
  const auto grid = make();
  LaunchControl launch = control();
  std::vector<std::vector<int>> hits(static_cast<size_t>(GetParam().num_teams), std::vector<int>(101));
  uint64_t sum = 0;
  grid->launch(
      [&](const HostTeam& team) {
        uint32_t mine = 0;
        team.lanes(101, [&](int i) {
          ++hits[static_cast<size_t>(team.id())][static_cast<size_t>(i)];
          mine += static_cast<uint32_t>(i);
        });
        team.add(&sum, mine);
      },
      launch);
  for (const auto& team : hits) EXPECT_EQ(team, std::vector<int>(101, 1));
  EXPECT_EQ(sum, 5050u * static_cast<uint64_t>(GetParam().num_teams));
}

TEST_P(HostGridTest, AfterSyncTheLeaderSeesWhatAllLanesWroteAndAllSeeWhatItWrites) {
  const auto grid = make(64 * sizeof(int64_t));
  LaunchControl launch = control();
  std::atomic<int> wrong{0};
  grid->launch(
      [&](const HostTeam& team) {
        auto* values = reinterpret_cast<int64_t*>(team.scratch());
        for (int64_t round = 1; round <= 5; ++round) {
          team.lanes(64, [&](int64_t i) { values[i] = i * round; });
          team.sync();
          team.leader([&] { values[0] = std::accumulate(values, values + 64, int64_t{0}); });
          team.sync();
          if (values[0] != 2016 * round) wrong.fetch_add(1);
          team.sync();
        }
      },
      launch);
  EXPECT_EQ(wrong.load(), 0);
}

// A wait of one lane that fails, or finds something wrong, must reach every lane.
TEST_P(HostGridTest, AllIsTrueOnlyIfItIsOnEveryLane) {
  const auto grid = make();
  LaunchControl launch = control();
  std::atomic<int> wrong{0};
  grid->launch(
      [&](const HostTeam& team) {
        bool mine = true;
        team.lanes(40, [&](int i) { mine = mine && i != 7; });
        if (team.all(mine)) wrong.fetch_add(1);
        if (!team.all(true)) wrong.fetch_add(1);
        bool second_ran = false;
        const bool both = team.both([](const auto&) { return false; },
                                    [&](const auto&) {
                                      second_ran = true;
                                      return true;
                                    });
        if (both || second_ran) wrong.fetch_add(1);
      },
      launch);
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(HostGridTest, ASpreadHasEveryValueOnEveryLane) {
  const auto grid = make();
  LaunchControl launch = control();
  std::atomic<int> wrong{0};
  grid->launch(
      [&](const HostTeam& team) {
        const auto squares = team.spread(kSpread, [](int i) { return i * i; });
        for (int i = 0; i < kSpread; ++i) wrong += squares.get(i) != i * i;
        team.lanes(kSpread, [&](int i) { wrong += squares.mine(i) != i * i; });
      },
      launch);
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(HostGridTest, AHeldTokenIsPutAndPlacedByteByByteAtAnyAlignment) {
  const auto grid = make();
  LaunchControl launch = control();
  std::vector<uint8_t> from(300);
  std::iota(from.begin(), from.end(), uint8_t{1});
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{255}}) {
    std::vector<std::vector<uint8_t>> to(static_cast<size_t>(GetParam().num_teams), std::vector<uint8_t>(300, 0xee));
    grid->launch(
        [&](const HostTeam& team) {
          const auto part = [&](uint8_t* data) {
            return Part{reinterpret_cast<std::byte*>(data), static_cast<int64_t>(bytes), 1, 1};
          };
          HostTeam::Held held;
          team.hold(&held, {part(from.data() + 1), {}}, false, 0);
          team.place(held, {part(to[static_cast<size_t>(team.id())].data() + 3), {}}, false, 0);
        },
        launch);
    for (const auto& got : to) {
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], i >= 3 && i < 3 + bytes ? from[i - 2] : 0xee) << bytes << " at " << i;
      }
    }
  }
}

// The reason why all teams must be resident: teams may wait for each other in any order.
TEST_P(HostGridTest, ATeamMayWaitForEveryOther) {
  const auto grid = make(0, 5);
  LaunchControl launch = control();
  const int n = GetParam().num_teams;
  std::vector<uint64_t> signals(static_cast<size_t>(n));
  std::atomic<int> failed{0};
  grid->launch(
      [&](const HostTeam& team) {
        team.leader([&] { store_release<Scope::kSystem>(&signals[static_cast<size_t>(team.id())], uint64_t{1}); });
        for (int other = n - 1; other >= 0; --other) {
          const auto* signal = &signals[static_cast<size_t>(other)];
          if (!wait_for(team, {Awaited::kCounts, 0, 0}, 1, [&] { return load_acquire<Scope::kSystem>(signal); }))
            failed.fetch_add(1);
        }
      },
      launch);
  EXPECT_EQ(failed.load(), 0);
  EXPECT_FALSE(launch.failure().has_value());
}

TEST_P(HostGridTest, OneTeamsFailureEndsAllWaitsAndTheFirstIsKept) {
  const auto grid = make();
  LaunchControl launch = control();
  uint64_t never = 0;
  grid->launch(
      [&](const HostTeam& team) {
        if (team.id() == 0) return team.fail({FailureKind::kCorrupt, {Awaited::kHeader, 3, 9}, 1, 2});
        EXPECT_FALSE(wait_for(team, {Awaited::kCounts, 1, 0}, 1, [&] { return load_acquire<Scope::kSystem>(&never); }));
      },
      launch);
  ASSERT_TRUE(launch.failure().has_value());
  EXPECT_EQ(launch.failure()->kind, FailureKind::kCorrupt);
  EXPECT_EQ(launch.failure()->site.peer, 3);
}

TEST_P(HostGridTest, AWaitEndsAtItsDeadline) {
  const auto grid = make();
  LaunchControl launch = control(std::chrono::milliseconds(30));
  uint64_t never = 0;
  const auto start = std::chrono::steady_clock::now();
  grid->launch(
      [&](const HostTeam& team) {
        EXPECT_FALSE(wait_for(team, {Awaited::kResult, 2, 7}, 4, [&] { return load_acquire<Scope::kSystem>(&never); }));
      },
      launch);
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(30));
  ASSERT_TRUE(launch.failure().has_value());
  EXPECT_EQ(launch.failure()->kind, FailureKind::kDeadline);
  EXPECT_EQ(launch.failure()->expected, 4u);
}

TEST_P(HostGridTest, APeerThatIsGoneEndsAWaitEarly) {
  const std::pair<PeerWord, FailureKind> words[] = {{PeerWord::kClosed, FailureKind::kPeerClosed},
                                                    {PeerWord::kFailed, FailureKind::kPeerFailed},
                                                    {PeerWord::kRunning, FailureKind::kPeerLost}};
  for (const auto& [word, kind] : words) {
    const auto grid = make();
    nobody_.word_ = word;
    nobody_.lost_ = true;
    LaunchControl launch = control();
    uint64_t never = 0;
    grid->launch(
        [&](const HostTeam& team) {
          EXPECT_FALSE(
              wait_for(team, {Awaited::kCounts, 1, 0}, 1, [&] { return load_acquire<Scope::kSystem>(&never); }));
        },
        launch);
    ASSERT_TRUE(launch.failure().has_value());
    EXPECT_EQ(launch.failure()->kind, kind);
  }
}

// What a peer sent before it left counts: the wait looks once more before it gives the peer up.
TEST_P(HostGridTest, TheLastSignalOfAPeerThatIsGoneIsSeen) {
  const auto grid = make();
  nobody_.word_ = PeerWord::kClosed;
  LaunchControl launch = control();
  grid->launch(
      [&](const HostTeam& team) {
        // Reads before the look at the peer are too early; the one after it finds the signal. (blame() reads too.)
        int reads = 0;
        EXPECT_TRUE(wait_for(team, {Awaited::kCounts, 1, 0}, 1, [&] { return uint64_t{++reads > 17 ? 1u : 0u}; }));
      },
      launch);
  EXPECT_FALSE(launch.failure().has_value());
}

// Bits must not depend on what the caller's thread has set, nor on the thread that a team runs in.
TEST_P(HostGridTest, KernelsRunInTheDefaultFloatingPointEnvironmentAndLeaveTheCallersAlone) {
  const auto grid = make();
  LaunchControl launch = control();
  std::fesetround(FE_UPWARD);
  std::atomic<int> wrong{0};
  grid->launch([&](const HostTeam&) { wrong += std::fegetround() != FE_TONEAREST; }, launch);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_TONEAREST);
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(HostGridTest, ASignalThatTheCallerBlocksStaysBlockedInItsThread) {
  const auto grid = make();
  LaunchControl launch = control();
  sigset_t usr1, before;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &before);
  std::atomic<int> unblocked{0};
  const pthread_t caller = pthread_self();
  grid->launch(
      [&](const HostTeam&) {
        sigset_t now;
        pthread_sigmask(SIG_SETMASK, nullptr, &now);
        if (pthread_equal(pthread_self(), caller) != 0 && sigismember(&now, SIGUSR1) == 0) ++unblocked;
      },
      launch);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(unblocked.load(), 0);
}

// In a child: the limit holds for the rest of a process.
TEST_P(HostGridTest, ThreadsAndStacksThatCannotBeHadAreAnExceptionNotTheEnd) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than the limit of this test leaves";
#endif
  const pid_t child = fork();
  if (child == 0) {
    const rlimit little{96u << 20,
                        96u << 20};  // Room for some stacks of 8 MiB, not for 256; for 1000 fibers, not for 8192.
    setrlimit(RLIMIT_AS, &little);
    int outcome = 1;
    try {
      (void)HostGrid::make({GetParam().form, 256, 1 << 20, 0});
    } catch (const std::exception&) {
      outcome = 0;
    }
    _exit(outcome);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_P(HostGridTest, AForkMayDestroyItsCopy) {
  auto grid = make();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // Waiting for threads that the child does not have would last for ever.
    grid.reset();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
}

TEST_P(HostGridTest, LaunchesMayComeFromDifferentThreads) {
  const auto grid = make();
  for (int i = 0; i < 4; ++i) {
    std::thread([&] {
      LaunchControl launch = control();
      std::atomic<int> runs{0};
      grid->launch([&](const HostTeam& team) { team.leader([&] { runs.fetch_add(1); }); }, launch);
      EXPECT_EQ(runs.load(), GetParam().num_teams);
    }).join();
  }
}

}  // namespace
}  // namespace moeway::exec
