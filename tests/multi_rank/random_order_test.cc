// Several objects, on several communicators of a process, among all ranks and among groups of them, their phases in any
// order that the rules allow and that is the same on all ranks. Every value is checked.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "multi_rank/check.h"
#include "multi_rank/forms.h"
#include "multi_rank/rank_access.h"

namespace moeway::multi_rank {
namespace {

constexpr int kRanks = 4;
constexpr int kGroup = 2;  // Ranks 0-1 and 2-3 have a communicator of their own too.

Case small_case(const LayoutForm& layout, int num_ranks, int rounds, uint64_t seed) {
  Case job;
  job.shape.num_ranks = num_ranks;
  job.shape.num_experts = 2 * num_ranks + 1;
  job.shape.topk = 3;
  job.shape.hidden = 37;
  job.shape.max_tokens = 7;
  layout.apply(job.shape);
  job.routes = reference::Routes::kMixed;
  job.values = reference::Values::kArbitrary;
  job.rounds = rounds;
  job.max_delay_us = 200;
  job.num_warps = 2;
  job.seed = seed;
  return job;
}

// An object's phases, one at a time, drawn among those that may come next (docs/protocols/direct.md, R1 to R4).
class Walk {
 public:
  Walk(Job& job, int rounds) : job_(job), rounds_(rounds) {}

  bool done() const { return sent_ == rounds_ && received_ == rounds_ && open() < 0 && waiting() < 0; }

  // False if a phase went wrong. The same choices on all ranks that draw from equal streams.
  bool step(reference::Random& random) {
    enum Move { kSend, kReceive, kDispatch, kCombineSend, kCombineReceive, kCombine, kSkip };
    std::vector<Move> moves;
    // R2: the round before last must not be half combined, nor may it be combined any more once its slots are reused.
    const bool may_send = received_ == sent_ && sent_ < rounds_ && (sent_ < 2 || stage(sent_ - 2) != kHalf);
    if (may_send) moves.insert(moves.end(), {kSend, kDispatch});
    if (received_ < sent_) moves.push_back(kReceive);
    const int to_combine = pick(random, kReceived), to_finish = pick(random, kHalf);
    if (to_combine >= 0) moves.insert(moves.end(), {kCombineSend, kCombineSend, kCombine, kSkip});
    if (to_finish >= 0) moves.insert(moves.end(), {kCombineReceive, kCombineReceive});
    switch (moves[static_cast<size_t>(random.between(0, static_cast<int64_t>(moves.size()) - 1))]) {
      case kSend:
        return begin(), job_.dispatch_send(sent_ - 1);
      case kReceive:
        return stage(received_) = kReceived, job_.dispatch_recv(received_++);
      case kDispatch:
        return begin(), stage(received_) = kReceived, job_.dispatch(received_++);
      case kCombineSend:
        return stage(to_combine) = kHalf, job_.combine_send(to_combine);
      case kCombineReceive:
        return stage(to_finish) = kOver, job_.combine_recv(to_finish);
      case kCombine:
        return stage(to_combine) = kOver, job_.combine(to_combine);
      case kSkip:
        return stage(to_combine) = kOver, true;
    }
    return false;
  }

 private:
  enum Stage { kNone, kReceived, kHalf, kOver };

  Stage& stage(int round) { return stages_[static_cast<size_t>(round % 2)]; }
  void begin() { stage(sent_++) = kNone; }
  int open() const { return stages_[0] == kReceived ? 0 : stages_[1] == kReceived ? 1 : -1; }
  int waiting() const { return stages_[0] == kHalf ? 0 : stages_[1] == kHalf ? 1 : -1; }
  // One of the last two rounds that is at this stage, -1 if none is; the later one may come first.
  int pick(reference::Random& random, Stage wanted) {
    const bool later_first = random.chance(50);
    for (const int back : {later_first ? 1 : 2, later_first ? 2 : 1})
      if (sent_ >= back && stage(sent_ - back) == wanted) return sent_ - back;
    return -1;
  }

  Job& job_;
  const int rounds_;
  int sent_ = 0, received_ = 0;
  std::array<Stage, 2> stages_{};
};

// Makes a communicator of `size` of these ranks, and runs `body` with a Rank of it; what it notes goes to `outer`.
void with_group(Rank& outer, const std::function<Result<Bootstrap>()>& meet, int place, int size,
                const std::function<void(Rank&)>& body) {
  Rank rank(place, size);
  RankAccess::run(rank, RanksOptions{}, meet, body);
  if (rank.failed()) outer.fail("among its group: " + RankAccess::failures(rank));
}

void run(As as, uint64_t seed, int rounds) {
  const Case all = small_case(kLayoutForms[seed % 5], kRanks, rounds, seed + 1);
  const Case second = small_case(kLayoutForms[(seed + 1) % 5], kRanks, rounds, seed + 2);
  const Case other = small_case(kLayoutForms[(seed + 2) % 5], kRanks, rounds, seed + 3);
  const Case group = small_case(kLayoutForms[(seed + 3) % 5], kGroup, rounds, seed + 4);
  const std::vector<reference::Batch> batches[] = {make_batches(all), make_batches(second), make_batches(other),
                                                   make_batches(group)};
  const ThreadGroup everybody(kRanks), halves[] = {ThreadGroup(kGroup), ThreadGroup(kGroup)};
  const PrivateDirectory everybodys, halfs[2];
  expect_runs(kRanks, as, [&](Rank& rank) {
    const int half = rank.rank() / kGroup, place = rank.rank() % kGroup;
    const auto meet_all = [&] {
      return as == As::kThreads ? Bootstrap::threads(everybody, rank.rank())
                                : Bootstrap::local(everybodys.path(), rank.rank(), kRanks);
    };
    const auto meet_half = [&] {
      return as == As::kThreads ? Bootstrap::threads(halves[half], place)
                                : Bootstrap::local(halfs[half].path(), place, kGroup);
    };
    with_group(rank, meet_all, rank.rank(), kRanks, [&](Rank& second_rank) {
      with_group(rank, meet_half, place, kGroup, [&](Rank& half_rank) {
        Job a(rank, all, batches[0]), b(rank, second, batches[1]), c(second_rank, other, batches[2]),
            d(half_rank, group, batches[3]);
        if (!a.create() || !d.create() || !b.create() || !c.create()) return;
        Walk walks[] = {Walk(a, rounds), Walk(b, rounds), Walk(c, rounds), Walk(d, rounds)};
        reference::Random random(seed);  // Equal on all ranks.
        for (;;) {
          std::vector<Walk*> left;
          for (Walk& walk : walks)
            if (!walk.done()) left.push_back(&walk);
          if (left.empty()) break;
          Walk& next = *left[static_cast<size_t>(random.between(0, static_cast<int64_t>(left.size()) - 1))];
          if (!next.step(random)) return;
        }
      });
    });
  });
}

TEST(RandomOrder, OfSeveralObjectsCommunicatorsAndGroupsAsThreads) {
  const uint64_t seed = printed_seed() % (uint64_t{1} << 32);
  for (int i = 0; i < scaled(16) && !testing::Test::HasFailure(); ++i) run(As::kThreads, seed + i, 12);
}

TEST(RandomOrder, OfSeveralObjectsCommunicatorsAndGroupsAsProcesses) {
  const uint64_t seed = printed_seed() % (uint64_t{1} << 32);
  for (int i = 0; i < scaled(16) && !testing::Test::HasFailure(); ++i) run(As::kProcesses, seed + i, 12);
}

// The next batch's dispatch, whole or in halves, while the results of the one before fly.
TEST(RandomOrder, TheNextBatchIsDispatchedBetweenTheHalvesOfACombine) {
  for (const LayoutForm& layout : kLayoutForms) {
    for (const As as : {As::kThreads, As::kProcesses}) {
      const Case job = small_case(layout, 3, scaled(24), 77);
      const auto batches = make_batches(job);
      const bool passed = expect_runs(3, as, [&](Rank& rank) {
        Job own(rank, job, batches);
        if (!own.create() || !own.dispatch(0)) return;
        for (int round = 1; round < job.rounds; ++round) {
          if (!own.combine_send(round - 1)) return;
          if (!(round % 2 == 0 ? own.dispatch(round) : own.dispatch_send(round) && own.dispatch_recv(round))) return;
          if (!own.combine_recv(round - 1)) return;
        }
        own.combine(job.rounds - 1);
      });
      ASSERT_TRUE(passed) << describe(job);
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
