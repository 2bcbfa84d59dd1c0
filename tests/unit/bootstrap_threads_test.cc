// Ranks as threads, and a caller's own all-gather.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>

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
using ::moeway::unit::run_threads;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::shared_ptr<ThreadMeeting> meeting_of(int num_ranks) { return make_thread_meeting(num_ranks).value(); }

TEST(Threads, GatherEverybodysBytesInRankOrder) {
  for (const int num_ranks : {1, 2, 3, 8, 64}) {
    const auto meeting = meeting_of(num_ranks);
    const auto outcomes = run_threads(num_ranks, [&](int rank) {
      const auto collective = meet_threads(meeting, rank);
      if (!collective.ok()) return collective.status().to_string();
      if (collective.value()->rank() != rank || collective.value()->size() != num_ranks)
        return std::string("misplaced");
      return gathers_in_rank_order(*collective.value(), 3000);
    });
    EXPECT_EQ(outcomes, all_well(num_ranks)) << num_ranks << " ranks";
  }
}

TEST(Threads, GatherRoundAfterRoundWithoutMixingThem) {
  const auto meeting = meeting_of(4);
  const auto outcomes = run_threads(4, [&](int rank) -> std::string {
    const auto collective = meet_threads(meeting, rank);
    for (int round = 0; round < 500; ++round) {
      const auto all = collective.value()->all_gather_value(round * 10 + rank, in_ms(10000));
      if (!all.ok()) return all.status().to_string();
      for (int r = 0; r < 4; ++r) {
        if (all.value()[static_cast<size_t>(r)] != round * 10 + r) return fmt::format("wrong in round {}", round);
      }
    }
    return "";
  });
  EXPECT_EQ(outcomes, all_well(4));
}

TEST(Threads, AcceptAnInputThatIsItsOwnPlaceInTheOutput) {
  const auto meeting = meeting_of(3);
  const auto outcomes = run_threads(3, [&](int rank) -> std::string {
    const auto collective = meet_threads(meeting, rank);
    std::array<int, 3> values{};
    values[static_cast<size_t>(rank)] = rank + 1;
    const Status status =
        collective.value()->all_gather(&values[static_cast<size_t>(rank)], sizeof(int), values.data(), in_ms(10000));
    return status.ok() && values == std::array<int, 3>{1, 2, 3} ? "" : status.to_string();
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(Threads, SayOnAllRanksWhoIsOutOfStep) {
  const auto meeting = meeting_of(3);
  const auto outcomes = run_threads(3, [&](int rank) {
    const auto collective = meet_threads(meeting, rank);
    return gather_outcome(*collective.value(), rank == 2 ? 24 : 48, 10000);
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("MISMATCH"), HasSubstr("rank 2 gathers 24 bytes, rank 0 48"))));
}

TEST(Threads, NameTheMissingWhenTheDeadlinePasses) {
  const auto meeting = meeting_of(6);
  const auto outcomes = run_threads(6, [&](int rank) -> std::string {
    const auto collective = meet_threads(meeting, rank);
    if (rank == 1 || rank == 3 || rank == 4) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
      // Who comes late hears the same.
      return gather_outcome(*collective.value(), 8, 10000);
    }
    return gather_outcome(*collective.value(), 8, 100);
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("ranks 1, 3-4 of 6 did not come"))));
}

// `rank_1_first`: rank 1 leaves before the others wait for it, or while they do.
std::vector<std::string> outcomes_when_rank_1_leaves(bool rank_1_first) {
  const auto meeting = meeting_of(3);
  std::barrier<> gone(3);
  return run_threads(3, [&](int rank) -> std::string {
    auto collective = meet_threads(meeting, rank);
    if (rank == 1) {
      if (!rank_1_first) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      collective = Status();
    }
    if (rank_1_first) gone.arrive_and_wait();
    return rank == 1 ? "left" : gather_outcome(*collective.value(), 8, 20000);
  });
}

TEST(Threads, NoticeAtOnceARankThatLeaves) {
  for (const bool rank_1_first : {true, false}) {
    const auto begin = std::chrono::steady_clock::now();
    const auto outcomes = outcomes_when_rank_1_leaves(rank_1_first);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
    for (const size_t rank : {0u, 2u}) EXPECT_THAT(outcomes[rank], AllOf(HasSubstr("PEER_LOST"), HasSubstr("rank 1")));
  }
}

TEST(Threads, TellEverybodyOfARankThatGivesUp) {
  const auto meeting = meeting_of(3);
  const auto outcomes = run_threads(3, [&](int rank) {
    const auto collective = meet_threads(meeting, rank);
    return outcome_when_one_gives_up(*collective.value(), 1);
  });
  for (const size_t rank : {0u, 2u}) EXPECT_EQ(outcomes[rank], "OUT_OF_MEMORY: rank 1: no room");
  EXPECT_EQ(outcomes[1], "OUT_OF_MEMORY: no room");
}

TEST(Threads, MayLeaveOnceTheyHaveTheResult) {
  const auto meeting = meeting_of(8);
  const auto outcomes = run_threads(8, [&](int rank) {
    const auto collective = meet_threads(meeting, rank);
    return gather_outcome(*collective.value(), 8, 10000);
  });
  EXPECT_THAT(outcomes, Each("OK"));
}

TEST(Threads, AgreeOnTheFailureOfTheLowestRank) {
  const auto meeting = meeting_of(4);
  const auto outcomes = run_threads(4, [&](int rank) {
    const auto collective = meet_threads(meeting, rank);
    const Status mine = rank >= 2 ? Status(MOEWAY_OUT_OF_MEMORY, fmt::format("no room at {}", rank)) : Status();
    return collective.value()->agree(mine, in_ms(10000)).to_string();
  });
  EXPECT_THAT(outcomes, Each("OUT_OF_MEMORY: rank 2: no room at 2"));
}

TEST(Threads, RefuseARankThatCannotExistOrIsTaken) {
  EXPECT_THAT(make_thread_meeting(0).status().message(), HasSubstr("num_ranks is 0, expected 1 or more"));
  const auto meeting = meeting_of(2);
  EXPECT_THAT(meet_threads(meeting, 2).status().message(), HasSubstr("rank is 2, expected 0 to 1"));
  EXPECT_THAT(meet_threads(meeting, -1).status().message(), HasSubstr("rank is -1, expected 0 to 1"));
  const auto first = meet_threads(meeting, 1);
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(meet_threads(meeting, 1).status().message(), HasSubstr("rank is 1, expected one that no other thread"));
}

// What a caller's own all-gather may look like.
struct SharedGather {
  explicit SharedGather(int num_ranks) : together(num_ranks), inputs(static_cast<size_t>(num_ranks)) {}
  std::barrier<> together;
  std::vector<const void*> inputs;
};

struct Caller {
  SharedGather* shared;
  int rank;
  int32_t outcome = 0;
  bool reversed = false;

  static int32_t all_gather(void* context, const void* in, size_t bytes, void* out) {
    const Caller& caller = *static_cast<Caller*>(context);
    SharedGather& shared = *caller.shared;
    shared.inputs[static_cast<size_t>(caller.rank)] = in;
    shared.together.arrive_and_wait();
    for (size_t r = 0; bytes > 0 && r < shared.inputs.size(); ++r) {
      const size_t place = caller.reversed ? shared.inputs.size() - 1 - r : r;
      std::memcpy(static_cast<std::byte*>(out) + place * bytes, shared.inputs[r], bytes);
    }
    shared.together.arrive_and_wait();
    return caller.outcome;
  }
};

TEST(Callback, CarriesTheGathers) {
  SharedGather shared(3);
  const auto outcomes = run_threads(3, [&](int rank) {
    Caller caller{&shared, rank};
    const auto collective = meet_callback(rank, 3, &Caller::all_gather, &caller);
    return gathers_in_rank_order(*collective.value(), 3000);
  });
  EXPECT_EQ(outcomes, all_well(3));
}

TEST(Callback, PassesItsFailureOn) {
  SharedGather shared(1);
  Caller caller{&shared, 0, 7};
  const auto collective = meet_callback(0, 1, &Caller::all_gather, &caller);
  EXPECT_THAT(gather_outcome(*collective.value(), 8, 100), HasSubstr("the caller's all-gather returned 7"));
}

TEST(Callback, IsFoundOutWhenItDeliversInAnotherOrder) {
  SharedGather shared(2);
  const auto outcomes = run_threads(2, [&](int rank) -> std::string {
    Caller caller{&shared, rank, 0, true};
    const auto collective = meet_callback(rank, 2, &Caller::all_gather, &caller);
    return collective.value()->all_gather_value(rank, in_ms(1000)).status().to_string();
  });
  EXPECT_THAT(outcomes, Each(AllOf(HasSubstr("MISMATCH"), HasSubstr("in rank order"))));
}

TEST(Callback, RefusesWrongArguments) {
  EXPECT_THAT(meet_callback(0, 1, nullptr, nullptr).status().message(), HasSubstr("all_gather is null"));
  EXPECT_THAT(meet_callback(3, 3, &Caller::all_gather, nullptr).status().message(),
              HasSubstr("rank is 3, expected 0 to 2"));
}

}  // namespace
}  // namespace moeway::bootstrap
