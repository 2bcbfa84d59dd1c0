// Letting go: in any order and at any time, twice, or not at all; by an exception, at the end of the process, and in a
// fork. It never waits for a peer and never disturbs one.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "multi_rank/board.h"
#include "multi_rank/check.h"
#include "multi_rank/small_round.h"
#include "reference/random.h"

namespace moeway::multi_rank {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kTimeoutMs = 20000;
constexpr int64_t kSlackMs = kSanitizer ? 10000 : 1000;

// Runs `body` on ranks that have an object and have made a round.
void run_after_a_round(As as, const std::function<void(Rank&, SmallRound&)>& body) {
  expect_runs(kRanks, as, [&](Rank& rank) {
    SmallRound small(kRanks, rank.rank());
    if (!rank.expect_ok(small.create(rank.communicator(), kTimeoutMs), "create")) return;
    if (!rank.expect_ok(small.run(0), "the first round")) return;
    body(rank, small);
  });
}

TEST(TeardownOrder, AnyOrderAtAnyTimeAndTwice) {
  const uint64_t seed = printed_seed();
  for (const As as : {As::kThreads, As::kProcesses}) {
    for (int attempt = 0; attempt < scaled(8); ++attempt) {
      run_after_a_round(as, [&](Rank& rank, SmallRound& small) {
        reference::Random random(reference::hash(seed, attempt, rank.rank()));
        SmallRound other(kRanks, rank.rank());
        rank.expect_ok(other.create(rank.communicator(), kTimeoutMs), "create another");
        rank.expect_ok(other.run(1), "round of the other");
        sleep_ms(random.between(0, 200));
        const int64_t start = now_ms();
        const auto close_objects = [&] {
          if (random.chance(50)) rank.expect_ok(other.all_to_all().close(), "close");
          rank.expect_ok(small.all_to_all().close(), "close");
          rank.expect_ok(small.all_to_all().close(), "close again");
          if (random.chance(50)) small.let_go();
          other.let_go();  // Closed or not.
        };
        const bool communicator_first = random.chance(50);
        if (!communicator_first) close_objects();
        rank.expect_ok(rank.communicator().close(), "communicator.close");
        rank.expect_ok(rank.communicator().close(), "communicator.close again");
        if (communicator_first) close_objects();
        rank.expect(now_ms() - start < kSlackMs, "letting go took a second or longer");
      });
    }
  }
}

TEST(TeardownOrder, AfterCloseEveryCallSaysSo) {
  run_after_a_round(As::kThreads, [](Rank& rank, SmallRound& small) {
    rank.expect_ok(small.all_to_all().close(), "close");
    const auto refused = [&](const Status& status, const char* what) {
      rank.expect_error(status, MOEWAY_WRONG_STATE, {"closed"}, what);
    };
    refused(small.dispatch_send(1), "dispatch_send");
    refused(small.dispatch_recv(), "dispatch_recv");
    refused(small.dispatch(1), "dispatch");
    refused(small.combine_send(), "combine_send");
    refused(small.combine_recv(), "combine_recv");
    refused(small.combine(), "combine");
    refused(small.all_to_all().status(), "status");
    refused(small.all_to_all().stats().status(), "stats");
    Tensor x;
    refused(small.all_to_all().dispatch_view(Routing{}, &x), "dispatch_view");
    rank.expect_ok(rank.communicator().close(), "communicator.close");
    refused(rank.communicator().barrier(), "barrier");
    refused(SmallRound(kRanks, rank.rank()).create(rank.communicator(), kTimeoutMs), "create");
  });
}

// Its objects go while the exception passes, and the others hear at once that they are closed.
TEST(TeardownOrder, AnExceptionBetweenDispatchAndCombineLeavesNobodyWaiting) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    expect_runs(kRanks, as, [&](Rank& rank) {
      const auto life = [&] {
        SmallRound small(kRanks, rank.rank());
        if (!rank.expect_ok(small.create(rank.communicator(), kTimeoutMs), "create")) return;
        if (!rank.expect_ok(small.dispatch(0), "dispatch")) return;
        if (rank.rank() == 1) throw std::runtime_error("a fault of the caller's own");
        const int64_t start = now_ms();
        rank.expect_error(small.combine(), MOEWAY_PEER_LOST, {"rank 1", "closed", "round 1"}, "combine");
        rank.expect(now_ms() - start < kTimeoutMs / 4 + kSlackMs, "it waited for the limit");
      };
      try {
        life();
      } catch (const std::runtime_error&) {
        rank.expect(rank.rank() == 1, "an exception of the library's");
      }
      // The communicator is as good as before.
      SmallRound again(kRanks, rank.rank());
      if (rank.expect_ok(again.create(rank.communicator(), kTimeoutMs), "create again"))
        rank.expect_ok(again.run(1), "round after the exception");
    });
  }
}

// ---- The end of the process

struct Held {
  std::optional<Communicator> communicator;
  std::optional<SmallRound> small;
};

// Destroyed by exit(), after main() would have returned; or never.
Held& held_until_exit() {
  static Held held;
  return held;
}
Held& held_for_ever() {
  static Held& held = *new Held;
  return held;
}

// A rank's whole process: its exit code, 0 if all was well.
int rank_process(const std::string& directory, int rank, Held& held, int64_t stay_ms) {
  const auto bad = [&](const Status& status) {
    if (!status.ok()) std::fprintf(stderr, "rank %d: %s\n", rank, status.to_string().c_str());
    return !status.ok();
  };
  Result<Bootstrap> bootstrap = Bootstrap::local(directory, rank, kRanks);
  if (bad(bootstrap.status())) return 1;
  Result<Communicator> communicator = Communicator::create(std::move(bootstrap).value());
  if (bad(communicator.status())) return 1;
  held.communicator.emplace(std::move(communicator).value());
  held.small.emplace(kRanks, rank);
  if (bad(held.small->create(*held.communicator, kTimeoutMs))) return 1;
  if (bad(held.small->run(0)) || bad(held.small->dispatch(1))) return 1;  // In the middle of a round.
  sleep_ms(stay_ms);
  return 0;
}

void expect_exits(Held& (*holder)(), int64_t stay_ms, void (*end)(int)) {
  const PrivateDirectory directory;
  std::fflush(nullptr);
  std::vector<pid_t> processes;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      alarm(100);  // A hang is a failure.
      end(rank_process(directory.path(), rank, holder(), rank == 0 ? 0 : stay_ms));
    }
    processes.push_back(process);
  }
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(processes[rank], &status, 0), processes[rank]);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "rank " << rank << ": wait status " << status;
  }
  EXPECT_TRUE(directory.entries().empty());
}

TEST(ProcessExit, WithoutCloseIsWellAndLeavesNothing) {
  expect_exits(held_until_exit, 0, [](int code) { std::exit(code); });
}
TEST(ProcessExit, WithObjectsThatNobodyDestroysIsWell) {
  expect_exits(held_for_ever, 0, [](int code) { std::exit(code); });
}
TEST(ProcessExit, WithoutDestructorsIsWell) {
  expect_exits(held_until_exit, 0, [](int code) { _exit(code); });
}
TEST(ProcessExit, OfRankZeroLongBeforeTheOthersIsWell) {
  expect_exits(held_until_exit, kSanitizer ? 1000 : 3000, [](int code) { std::exit(code); });
}

// ---- Forks

// What a fork of a rank does with its copies; "" if it was as it should be.
std::string as_fork(Rank& rank, SmallRound& small, int way) {
  Communicator communicator = std::move(rank.communicator());
  if (way == 1) {
    // Everything is refused, and touches nothing.
    SmallRound other(kRanks, rank.rank());
    for (const Status& status :
         {small.dispatch_send(1), small.dispatch(1), small.combine(), small.combine_recv(), small.all_to_all().status(),
          small.all_to_all().stats().status(), communicator.barrier(), other.create(communicator, 1000)}) {
      if (status.code() != MOEWAY_WRONG_STATE || status.message().find("fork") == std::string::npos)
        return "expected WRONG_STATE, got " + status.to_string();
    }
  }
  if (way == 2 && !small.all_to_all().close().ok()) return "close";
  if (way == 2 && !communicator.close().ok()) return "communicator.close";
  if (way != 3) small.let_go();
  if (way == 3) Communicator gone = std::move(communicator);  // Before the object.
  if (way == 3) small.let_go();
  return "";
}

TEST(Fork, MayLetItsCopiesGoAndDoNothingElse) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    if (kThreadSanitizer && as == As::kThreads) continue;  // It knows no forks of programs with threads.
    for (const bool of_all : {false, true}) {
      run_after_a_round(as, [&](Rank& rank, SmallRound& small) {
        for (int way = 0; way < 4; ++way) {
          if (of_all || rank.rank() == way % kRanks) {
            const pid_t process = fork();
            if (process == 0) {
              alarm(60);
              const std::string wrong = as_fork(rank, small, way);
              if (!wrong.empty()) std::fprintf(stderr, "fork, way %d: %s\n", way, wrong.c_str());
              _exit(wrong.empty() ? 0 : 1);
            }
            int status = 0;
            waitpid(process, &status, 0);
            rank.expect(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                        "the fork of way " + std::to_string(way) + " ended with status " + std::to_string(status));
          }
          // The job goes on: rounds, collective calls and new objects.
          rank.expect_ok(small.run(1 + way), "round after the fork");
          rank.expect_ok(rank.communicator().barrier(), "barrier after the fork");
          SmallRound other(kRanks, rank.rank());
          if (rank.expect_ok(other.create(rank.communicator(), kTimeoutMs), "create after the fork"))
            rank.expect_ok(other.run(7), "round of an object made after the fork");
        }
      });
    }
  }
}

// A child that holds copies of its parent's sockets and memory keeps the parent neither alive nor unnoticed.
TEST(Fork, OfADeadRankDoesNotPassForIt) {
  struct Child {
    std::atomic<pid_t> process;
  };
  const Shared<Child> child;
  RanksOptions options{kRanks, As::kProcesses, std::chrono::seconds(60)};
  options.may_die = {2};
  const RanksResult result = run_ranks(options, [&](Rank& rank) {
    SmallRound small(kRanks, rank.rank());
    if (!rank.expect_ok(small.create(rank.communicator(), kTimeoutMs), "create")) return;
    if (!rank.expect_ok(small.run(0), "the first round")) return;
    if (rank.rank() == 2) {
      const pid_t process = fork();
      if (process == 0) {
        for (int fd = 0; fd < 3; ++fd) close(fd);
        sleep_ms(60000);
        _exit(0);
      }
      child->process = process;
      raise(SIGKILL);
    }
    const int64_t start = now_ms();
    rank.expect_error(small.run(1), MOEWAY_PEER_LOST, {"rank 2"}, "the round after the death");
    rank.expect(now_ms() - start < kTimeoutMs / 4 + kSlackMs, "it waited for the limit");
    if (rank.rank() == 0) kill(child->process, SIGKILL);
  });
  EXPECT_EQ(result.failures, "");
}

}  // namespace
}  // namespace moeway::multi_rank
