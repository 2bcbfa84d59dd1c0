// Ranks as processes that meet in a private directory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <fstream>
#include <random>

#include "bootstrap/bootstrap.h"
#include "unit/collective_checks.h"
#include "unit/rank_processes.h"

namespace moeway::bootstrap {
namespace {

using ::moeway::unit::all_well;
using ::moeway::unit::gather_outcome;
using ::moeway::unit::gathers_in_rank_order;
using ::moeway::unit::in_ms;
using ::moeway::unit::outcome_when_one_gives_up;
using ::moeway::unit::RankProcesses;
using ::moeway::unit::run_processes;
using ::moeway::unit::TemporaryDirectory;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kPatience{15000};
constexpr const char* kSocket = "/moeway.socket";

std::string meet_and_gather(const std::string& directory, int rank, int num_ranks) {
  const auto collective = meet_local(directory, rank, num_ranks, kPatience);
  return collective.ok() ? gathers_in_rank_order(*collective.value()) : collective.status().to_string();
}

TEST(Local, GathersEverybodysBytesInRankOrder) {
  for (const int num_ranks : {1, 2, 5}) {
    const TemporaryDirectory directory;
    EXPECT_EQ(run_processes(num_ranks, [&](int rank) { return meet_and_gather(directory.path(), rank, num_ranks); }),
              all_well(num_ranks));
    EXPECT_THAT(directory.entries(), IsEmpty());
  }
}

TEST(Local, BringsSixtyFourRanksTogether) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(64, [&](int rank) -> std::string {
    const auto collective = meet_local(directory.path(), rank, 64, kPatience);
    if (!collective.ok()) return collective.status().to_string();
    const auto all = collective.value()->all_gather_value(rank * 3, in_ms(10000));
    if (!all.ok()) return all.status().to_string();
    return all.value()[63] == 189 ? "" : "wrong";
  });
  EXPECT_EQ(outcomes, all_well(64));
}

TEST(Local, RemovesItsSocketAsSoonAsAllAreThere) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    const auto collective = meet_local(directory.path(), rank, 3, kPatience);
    return directory.entries().empty() ? "" : "the socket is still there";
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(Local, MeetsAgainAndAgainInOneDirectory) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    for (int job = 0; job < 20; ++job) {
      const auto collective = meet_local(directory.path(), rank, 3, kPatience);
      if (!collective.ok()) return fmt::format("job {}: {}", job, collective.status().to_string());
      const auto all = collective.value()->all_gather_value(job, in_ms(10000));
      if (!all.ok()) return all.status().to_string();
      if (all.value() != std::vector<int>(3, job)) return "jobs are mixed";
    }
    return "";
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(Local, IsNotDisturbedByWhatAnEarlierJobLeft) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + kSocket;
  {  // A socket file that nobody listens at any more.
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    const int dead = socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(bind(dead, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    close(dead);
  }
  const auto job = [&](int rank) { return meet_and_gather(directory.path(), rank, 2); };
  EXPECT_EQ(run_processes(2, job), all_well(2));
  std::ofstream(path) << "garbage of another kind";
  EXPECT_EQ(run_processes(2, job), all_well(2));
  EXPECT_THAT(directory.entries(), IsEmpty());
}

TEST(Local, TakesADirectoryWithAPathLongerThanASocketsName) {
  const TemporaryDirectory directory;
  std::string deep = directory.path();
  for (int i = 0; i < 4; ++i) deep += "/" + std::string(60, 'd');
  std::filesystem::create_directories(deep);
  ASSERT_EQ(chmod(deep.c_str(), 0700), 0);
  EXPECT_EQ(run_processes(2, [&](int rank) { return meet_and_gather(deep, rank, 2); }), all_well(2));
}

TEST(Local, RefusesADirectoryThatOthersCanEnter) {
  const TemporaryDirectory directory;
  for (const mode_t mode : {0755u, 0710u, 0701u, 0770u, 0500u}) {
    ASSERT_EQ(chmod(directory.path().c_str(), mode), 0);
    const Status status = meet_local(directory.path(), 0, 2, kPatience).status();
    EXPECT_EQ(status.code(), MOEWAY_INVALID_ARGUMENT);
    EXPECT_THAT(status.message(), HasSubstr(fmt::format("has mode {:04o}, expected 0700", mode)));
  }
}

TEST(Local, RefusesAnotherUsersDirectory) {
  const TemporaryDirectory directory;
  if (chown(directory.path().c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
    GTEST_SKIP() << "needs the right to give a directory to another user";
  }
  EXPECT_THAT(meet_local(directory.path(), 0, 2, kPatience).status().message(),
              HasSubstr("belongs to user 12345, expected"));
}

TEST(Local, RefusesWrongArguments) {
  const TemporaryDirectory directory;
  EXPECT_THAT(meet_local("/nowhere/at/all", 0, 2, kPatience).status().message(),
              HasSubstr("directory is '/nowhere/at/all': No such file or directory"));
  EXPECT_THAT(meet_local(directory.path(), 2, 2, kPatience).status().message(), HasSubstr("rank is 2"));
  EXPECT_THAT(meet_local(directory.path(), 0, 0, kPatience).status().message(), HasSubstr("num_ranks is 0"));
  EXPECT_THAT(meet_local(directory.path(), 0, 2, milliseconds(0)).status().message(), HasSubstr("timeout is 0 ms"));
}

TEST(Local, TellsEverybodyOfARankThatGivesUp) {
  for (const int odd : {0, 1}) {
    const TemporaryDirectory directory;
    const auto outcomes = run_processes(3, [&](int rank) -> std::string {
      const auto collective = meet_local(directory.path(), rank, 3, kPatience);
      return outcome_when_one_gives_up(*collective.value(), odd);
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(outcomes[static_cast<size_t>(rank)],
                fmt::format("OUT_OF_MEMORY: {}no room", rank == odd ? "" : fmt::format("rank {}: ", odd)));
    }
  }
}

// A fork's copy of a connection is let go without a word, and says nothing for its parent.
TEST(Local, IsNotDisturbedByAFork) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    auto collective = meet_local(directory.path(), rank, 3, kPatience);
    if (!collective.ok()) return collective.status().to_string();
    const auto in_fork = run_processes(1, [&](int) {
      std::unique_ptr<Collective> copy = std::move(collective).value();
      copy->abandon(Status(MOEWAY_INTERNAL, "not for the others"));
      const Status refused = copy->all_gather_value(1, in_ms(1000)).status();
      copy.reset();
      return refused.to_string();
    });
    if (in_fork[0] != fmt::format("WRONG_STATE: this process is a fork of rank {}'s, and no rank", rank))
      return "in the fork: " + in_fork[0];
    return gathers_in_rank_order(*collective.value());
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(Local, BearsTheLongestTimeout) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(2, [&](int rank) {
    const auto collective = meet_local(directory.path(), rank, 2, milliseconds::max());
    return collective.status().to_string();
  });
  EXPECT_THAT(outcomes, Each("OK"));
}

TEST(Local, NamesOnAllRanksWhoDidNotComeToTheMeeting) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(6, [&](int rank) -> std::string {
    if (rank == 2 || rank == 4 || rank == 5) return "absent";
    return meet_local(directory.path(), rank, 6, milliseconds(400)).status().to_string();
  });
  for (const size_t rank : {0u, 1u, 3u})
    EXPECT_THAT(outcomes[rank], AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("ranks 2, 4-5 of 6 did not come")));
  EXPECT_THAT(directory.entries(), IsEmpty());
}

TEST(Local, NamesRankZeroWhenItIsMissing) {
  const TemporaryDirectory directory;
  const Status status = meet_local(directory.path(), 1, 2, milliseconds(200)).status();
  EXPECT_EQ(status.code(), MOEWAY_DEADLINE_EXCEEDED);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1 could not reach rank 0"), HasSubstr("No such file")));
}

TEST(Local, TellsEverybodyOfTwoProcessesWithOneRank) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(4, [&](int process) {
    const int rank = process == 3 ? 1 : process;
    if (rank == 2) return std::string("comes later");
    return meet_local(directory.path(), rank, 4, milliseconds(2000)).status().to_string();
  });
  EXPECT_THAT(outcomes[0], AllOf(HasSubstr("MISMATCH"), HasSubstr("two processes call themselves rank 1")));
  EXPECT_EQ(outcomes[1], outcomes[0]);
  EXPECT_EQ(outcomes[3], outcomes[0]);
}

TEST(Local, TellsASecondRankZero) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(2, [&](int process) {
    return meet_local(directory.path(), 0, 2, milliseconds(process == 0 ? 1600 : 1500)).status().to_string();
  });
  EXPECT_THAT(outcomes, ::testing::Contains(AllOf(HasSubstr("WRONG_STATE"), HasSubstr("another rank 0"))));
}

TEST(Local, TellsEverybodyOfAnotherWorldSize) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(2, [&](int rank) {
    return meet_local(directory.path(), rank, rank == 0 ? 3 : 2, milliseconds(2000)).status().to_string();
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("MISMATCH"), HasSubstr("has num_ranks 2, rank 0 has 3"))));
}

TEST(Local, SaysOnAllRanksWhoIsOutOfStep) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(4, [&](int rank) {
    const auto collective = meet_local(directory.path(), rank, 4, kPatience);
    return gather_outcome(*collective.value(), rank == 2 ? 24 : 48, 5000);
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("MISMATCH"), HasSubstr("rank 2 gathers 24 bytes, rank 0 48"))));
}

TEST(Local, SaysOnAllRanksWhoIsOutOfStepInLargeGathers) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(4, [&](int rank) {
    const auto collective = meet_local(directory.path(), rank, 4, kPatience);
    return gather_outcome(*collective.value(), rank == 3 ? 4000000 : 4000001, 5000);
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("MISMATCH"), HasSubstr("rank 3 gathers 4000000 bytes"))));
}

TEST(Local, NamesTheMissingOnEveryRankThatWaits) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(5, [&](int rank) -> std::string {
    const auto collective = meet_local(directory.path(), rank, 5, kPatience);
    if (rank == 1 || rank == 3) {
      std::this_thread::sleep_for(milliseconds(800));
      return gather_outcome(*collective.value(), 8, 5000);
    }
    // Rank 0 would wait longer than those who wait for its word.
    return gather_outcome(*collective.value(), 8, rank == 0 ? 5000 : 200);
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("ranks 1, 3 of 5 did not come"))));
}

TEST(Local, GivesUpOnARankZeroThatDoesNotCome) {
  const TemporaryDirectory directory;
  const auto outcomes = run_processes(3, [&](int rank) -> std::string {
    const auto collective = meet_local(directory.path(), rank, 3, kPatience);
    if (rank == 0) std::this_thread::sleep_for(milliseconds(1200));
    return gather_outcome(*collective.value(), 8, rank == 0 ? 5000 : 200);
  });
  // Rank 0 itself hears who has given up when it comes at last.
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("rank 0 did not come to all-gather"))));
}

TEST(Local, NoticesAtOnceARankThatIsKilled) {
  const TemporaryDirectory directory;
  for (const int victim : {0, 2}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto outcomes = run_processes(4, [&](int rank) -> std::string {
      const auto collective = meet_local(directory.path(), rank, 4, kPatience);
      if (rank == victim) raise(SIGKILL);
      return gather_outcome(*collective.value(), 100000, 15000);
    });
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(outcomes[static_cast<size_t>(rank)],
                  AllOf(HasSubstr("PEER_LOST"), HasSubstr(fmt::format("rank {}", victim))));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(8000));
  }
}

TEST(Local, WaitsForARankThatStandsStillForAWhile) {
  const TemporaryDirectory directory;
  RankProcesses ranks(3, [&](int rank) -> std::string {
    const auto collective = meet_local(directory.path(), rank, 3, kPatience);
    if (rank == 1) raise(SIGSTOP);
    return gather_outcome(*collective.value(), 8, 10000);
  });
  std::this_thread::sleep_for(milliseconds(500));
  ranks.send(1, SIGCONT);
  EXPECT_THAT(ranks.outcomes(kPatience), Each("OK"));
}

// Kills ranks at moments spread over the meeting and the first gathers. Nobody may hang, and what a killed rank 0 leaves,
// its socket, is removed by those who are still there.
TEST(Local, SurvivesKillsAtAnyMoment) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  const TemporaryDirectory directory;
  for (int job = 0; job < 20; ++job) {
    const int victim = static_cast<int>(random() % 3);
    const auto moment = std::chrono::microseconds(random() % 3000);
    RankProcesses ranks(3, [&](int rank) -> std::string {
      const auto collective = meet_local(directory.path(), rank, 3, milliseconds(250));
      if (!collective.ok()) return collective.status().to_string();
      return gather_outcome(*collective.value(), 8, 250);
    });
    std::this_thread::sleep_for(moment);
    ranks.send(victim, SIGKILL);
    EXPECT_THAT(ranks.outcomes(milliseconds(6000)),
                Each(AnyOf("OK", "killed by signal 9", HasSubstr("PEER_LOST"), HasSubstr("DEADLINE_EXCEEDED"))));
    EXPECT_THAT(directory.entries(), IsEmpty());
  }
  EXPECT_EQ(run_processes(3, [&](int rank) { return meet_and_gather(directory.path(), rank, 3); }), all_well(3));
  EXPECT_THAT(directory.entries(), IsEmpty());
}

}  // namespace
}  // namespace moeway::bootstrap
