// A rank is killed at any moment of a job's life: survivors get an error within their limit and a second, can let
// everything go, and nothing is left behind. The moments are drawn at random from a seed that is printed;
// MOEWAY_TEST_KILLS is how many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "multi_rank/board.h"
#include "multi_rank/check.h"
#include "multi_rank/small_round.h"
#include "reference/random.h"

namespace moeway::multi_rank {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kLimitMs = kSanitizer ? 3000 : 1000;
constexpr int64_t kSlackMs = kSanitizer ? 10000 : 1000;

// Where the victim's end is set off, and how long after.
struct KillPoint {
  int victim;
  int step;
  int64_t delay_us;  // 0: before the step begins.
};

struct Board {
  std::atomic<int64_t> end_us;                              // When the victim ends.
  std::atomic<int64_t> num_at_limit, num_told, slowest_ms;  // Of all survivors so far.
};

int64_t now_us() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// The kernel kills this process at that moment, whatever it does then.
void die_at_us(int64_t end_us) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  itimerspec when{};
  when.it_value.tv_sec = end_us / 1000000;
  when.it_value.tv_nsec = end_us % 1000000 * 1000;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, TIMER_ABSTIME, &when, nullptr) != 0) {
    abort();
  }
}

// A rank's life: meet, make two objects, rounds in halves and whole, close one, make another, and then rounds for ever.
class Life {
 public:
  Life(const PrivateDirectory& meeting, int rank)
      : meeting_(meeting), rank_(rank), a_(kRanks, rank), b_(kRanks, rank) {}

  static constexpr int kSteps = 17;  // That is the first of the endless rounds.

  Status step(int number) {
    const int round = number;
    switch (number) {
      case 0:
        return meet();
      case 1:
        return make_communicator();
      case 2:
        return a_.create(*communicator_, kLimitMs);
      case 3:
        return b_.create(*communicator_, kLimitMs);
      case 4:
        return a_.dispatch_send(4);
      case 5:
        return a_.dispatch_recv();
      case 6:
        return b_.dispatch(4);
      case 7:
        return a_.combine_send();
      case 8:
        return b_.combine();
      case 9:
        return a_.combine_recv();
      case 10:
        return communicator_->barrier();
      case 11:
        return a_.all_to_all().close();
      case 12:
        return communicator_->barrier();  // Nobody waits for an object that its rank has closed.
      case 13:
        return a_.create(*communicator_, kLimitMs);
      default:
        return number % 3 == 0 ? b_.run(round) : a_.run(round);
    }
  }

  // Whatever is there; a second time as well.
  Status close() {
    Status first;
    for (int time = 0; time < 2; ++time) {
      for (SmallRound* small : {&a_, &b_})
        if (small->created() && first.ok()) first = small->all_to_all().close();
      if (communicator_ && first.ok()) first = communicator_->close();
    }
    return first;
  }

 private:
  Status meet() {
    Result<Bootstrap> made = Bootstrap::local(meeting_.path(), rank_, kRanks, std::chrono::milliseconds(kLimitMs));
    if (!made.ok()) return made.status();
    bootstrap_.emplace(std::move(made).value());
    return {};
  }
  Status make_communicator() {
    CommunicatorOptions options;
    options.timeout_ms = kLimitMs;
    Result<Communicator> made = Communicator::create(std::move(*bootstrap_), options);
    if (!made.ok()) return made.status();
    communicator_.emplace(std::move(made).value());
    return {};
  }

  const PrivateDirectory& meeting_;
  const int rank_;
  std::optional<Bootstrap> bootstrap_;
  std::optional<Communicator> communicator_;
  SmallRound a_, b_;
};

// What is the machine's and may not have grown: named shared memory, and sockets with names below `directory`.
std::multiset<std::string> left_on_the_machine(const std::string& directory) {
  std::multiset<std::string> left;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", none)) {
    const std::string name = entry.path().filename().string();
    if (name.find("moeway") != std::string::npos) left.insert("/dev/shm/" + name);
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    if (line.find(directory) != std::string::npos) left.insert(line);
  return left;
}

class KillPoints : public ::testing::Test {
 protected:
  void run(const KillPoint& point) {
    SCOPED_TRACE("rank " + std::to_string(point.victim) + " killed " + std::to_string(point.delay_us) +
                 " us into step " + std::to_string(point.step));
    board_->end_us = 0;
    run_ranks_that_may_die({point.victim}, [&](Rank& rank) { live(rank, point, *board_); });
    EXPECT_THAT(meeting_.entries(), testing::IsEmpty());
    EXPECT_THAT(temporary_.entries(), testing::IsEmpty());
  }

  // Named memory and sockets are gone when they are.
  void run_ranks_that_may_die(const std::vector<int>& victims, const std::function<void(Rank&)>& body) {
    RanksOptions options{kRanks, As::kProcesses, std::chrono::seconds(kSanitizer ? 120 : 30), false};
    options.may_die = victims;
    const RanksResult result = run_ranks(options, [&](Rank& rank) {
      unsetenv("XDG_RUNTIME_DIR");
      setenv("TMPDIR", temporary_.path().c_str(), 1);
      body(rank);
    });
    EXPECT_EQ(result.failures, "");
    EXPECT_THAT(left_on_the_machine(temporary_.path()), testing::IsEmpty());
    EXPECT_THAT(left_on_the_machine(meeting_.path()), testing::IsEmpty());
  }

  PrivateDirectory meeting_, temporary_;
  const Shared<Board> board_;

 private:
  void live(Rank& rank, const KillPoint& point, Board& board) {
    Life life(meeting_, rank.rank());
    Status status;
    int step = 0;
    for (; status.ok(); ++step) {
      if (rank.rank() == point.victim && step == point.step) {
        board.end_us = now_us() + point.delay_us;
        if (point.delay_us == 0) raise(SIGKILL);
        die_at_us(board.end_us);
      }
      status = life.step(step);
    }
    const int64_t ended_us = now_us();
    const std::string what = "step " + std::to_string(step - 1) + ": " + status.to_string();
    if (rank.rank() == point.victim) {
      rank.expect(board.end_us != 0, "failed before anybody was killed, in " + what);
      for (;;) pause();  // Its end is near.
    }
    const int64_t end_us = board.end_us;
    rank.expect(end_us != 0 && ended_us >= end_us, "failed before anybody was killed, in " + what);
    rank.expect(status.code() == MOEWAY_PEER_LOST || status.code() == MOEWAY_DEADLINE_EXCEEDED, what);
    const int64_t took_ms = (ended_us - end_us) / 1000;
    rank.expect(took_ms < kLimitMs + kSlackMs, "took " + std::to_string(took_ms) + " ms, in " + what);
    ++(status.code() == MOEWAY_DEADLINE_EXCEEDED ? board.num_at_limit : board.num_told);
    int64_t slowest_ms = board.slowest_ms;
    while (took_ms > slowest_ms && !board.slowest_ms.compare_exchange_weak(slowest_ms, took_ms)) {
    }
    const int64_t start = now_ms();
    rank.expect_ok(life.close(), "close");
    rank.expect(now_ms() - start < kSlackMs, "close took a second or longer");
  }
};

TEST_F(KillPoints, SurvivorsGetAnErrorInTimeAndNothingIsLeft) {
  const uint64_t seed = printed_seed();
  const char* asked = std::getenv("MOEWAY_TEST_KILLS");
  const int kills = asked != nullptr ? std::atoi(asked) : scaled(200);
  reference::Random random(seed);
  for (int i = 0; i < kills && !HasFailure(); ++i) {
    KillPoint point{};
    // Most can be left behind while ranks meet, and by rank 0.
    point.victim = random.chance(20) ? 0 : static_cast<int>(random.between(0, kRanks - 1));
    point.step = static_cast<int>(random.between(0, random.chance(15) ? 1 : Life::kSteps));
    // Mostly within the step; some a while later, in whatever comes then.
    if (!random.chance(15)) point.delay_us = random.between(1, int64_t{1} << random.between(1, 13));
    run(point);
  }
  std::printf(
      "%d kills: %lld survivors heard of it, %lld waited for their limit of %lld ms; the slowest took %lld ms\n", kills,
      static_cast<long long>(board_->num_told), static_cast<long long>(board_->num_at_limit),
      static_cast<long long>(kLimitMs), static_cast<long long>(board_->slowest_ms));
}

// Then nobody is there to clean up. Memory and sockets go with the processes; what may stay of a meeting's few moments
// are the names of docs/bootstrap.md, which disturb no later job.
TEST_F(KillPoints, OfAllRanksAtOnceLeaveNoMemoryAndDisturbNoLaterJob) {
  reference::Random random(printed_seed());
  for (int i = 0; i < scaled(20); ++i) {
    board_->end_us = now_us() + random.between(0, int64_t{1} << random.between(1, 15));
    run_ranks_that_may_die({0, 1, 2, 3}, [&](Rank& rank) {
      die_at_us(board_->end_us);
      Life life(meeting_, rank.rank());
      for (int step = 0; life.step(step).ok(); ++step) {
      }
      for (;;) pause();
    });
    for (const std::string& name : meeting_.entries()) EXPECT_EQ(name, "moeway.socket");
    for (const std::string& name : temporary_.entries()) EXPECT_THAT(name, testing::MatchesRegex("moeway-[0-9a-f]+"));
  }
  run_ranks_that_may_die({}, [&](Rank& rank) {
    Life life(meeting_, rank.rank());
    for (int step = 0; step <= Life::kSteps; ++step)
      if (!rank.expect_ok(life.step(step), "step " + std::to_string(step))) return;
  });
  EXPECT_THAT(meeting_.entries(), testing::IsEmpty());
}

}  // namespace
}  // namespace moeway::multi_rank
