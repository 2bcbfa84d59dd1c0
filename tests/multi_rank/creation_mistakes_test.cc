// A mistake that one rank makes in a collective call: the others, who are on their way, hear of it in that call, with
// the reason, and do not wait for their limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "multi_rank/board.h"
#include "multi_rank/check.h"
#include "multi_rank/small_round.h"

namespace moeway::multi_rank {
namespace {

constexpr int kRanks = 3;
constexpr int kOdd = 1;
constexpr int64_t kTimeoutMs = 60000;
constexpr int64_t kSoonMs = 10000;

// `call` fails on this rank, soon, with all of that in its message.
void expect_hears(Rank& rank, StatusCode code, const std::vector<std::string>& texts,
                  const std::function<Status()>& call) {
  const int64_t start = now_ms();
  rank.expect_error(call(), code, texts, "the call that one rank makes wrongly");
  rank.expect(now_ms() - start < kSoonMs, "took " + std::to_string(now_ms() - start) + " ms");
}

void expect_works(Rank& rank, Communicator& communicator) {
  SmallRound small(kRanks, rank.rank());
  if (rank.expect_ok(small.create(communicator, kTimeoutMs), "create")) rank.expect_ok(small.run(0), "a round");
}

// An all-gather as a caller may bring his own: between threads, without any limit of time.
class CallersMeeting {
 public:
  bool gather(int rank, const void* in, size_t bytes, void* out) {
    std::unique_lock lock(mutex_);
    const auto* from = static_cast<const char*>(in);
    given_[static_cast<size_t>(rank)].assign(from, from + bytes);
    const int64_t round = round_;
    if (++num_come_ == kRanks) {
      all_.clear();
      for (const std::string& given : given_) all_ += given;
      num_come_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round; });
    if (all_.size() != bytes * kRanks) return false;
    std::copy(all_.begin(), all_.end(), static_cast<char*>(out));
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<std::string, kRanks> given_;
  std::string all_;
  int num_come_ = 0;
  int64_t round_ = 0;
};

// `body(rank, make_bootstrap)` over every kind of bootstrap.
void over_all_bootstraps(const std::function<void(Rank&, const std::function<Result<Bootstrap>()>&)>& body) {
  const ThreadGroup group(kRanks);
  const PrivateDirectory directory;
  CallersMeeting callers;
  const auto run = [&](As as, const std::function<Result<Bootstrap>(int rank)>& make) {
    RanksOptions options{kRanks, as, std::chrono::seconds(60), false};
    const RanksResult result = run_ranks(options, [&](Rank& rank) { body(rank, [&] { return make(rank.rank()); }); });
    EXPECT_EQ(result.failures, "") << as_name(as);
  };
  run(As::kThreads, [&](int rank) { return Bootstrap::threads(group, rank); });
  run(As::kProcesses, [&](int rank) { return Bootstrap::local(directory.path(), rank, kRanks); });
  run(As::kThreads, [&](int rank) {
    return Bootstrap::callback(rank, kRanks, [&, rank](const void* in, size_t bytes, void* out) {
      return callers.gather(rank, in, bytes, out);
    });
  });
}

TEST(CreationMistakes, OfACommunicatorsOptionsAreHeardByAllRanks) {
  struct Mistake {
    std::function<void(CommunicatorOptions&)> make;
    std::vector<std::string> texts;
  };
  const std::vector<Mistake> mistakes = {
      {[](CommunicatorOptions& options) { options.struct_size = 4; }, {"rank 1", "options.struct_size is 4"}},
      {[](CommunicatorOptions& options) { options.timeout_ms = 0; }, {"rank 1", "options.timeout_ms is 0"}},
  };
  for (const Mistake& mistake : mistakes) {
    over_all_bootstraps([&](Rank& rank, const std::function<Result<Bootstrap>()>& meet) {
      CommunicatorOptions options;
      options.timeout_ms = kTimeoutMs;
      if (rank.rank() == kOdd) mistake.make(options);
      Result<Bootstrap> met = meet();
      if (!rank.expect_ok(met.status(), "bootstrap")) return;
      expect_hears(rank, MOEWAY_INVALID_ARGUMENT, mistake.texts,
                   [&] { return Communicator::create(std::move(met).value(), options).status(); });
    });
  }
}

TEST(CreationMistakes, OfACommunicatorWithoutAPlaceAreHeardByAllRanks) {
  const ThreadGroup group(kRanks);
  const RanksResult result = run_ranks({kRanks, As::kThreads, std::chrono::seconds(60), false}, [&](Rank& rank) {
    moeway_bootstrap* bootstrap = nullptr;
    moeway_communicator* made = nullptr;
    moeway_bootstrap_create_threads(group.get(), rank.rank(), &bootstrap);
    expect_hears(rank, MOEWAY_INVALID_ARGUMENT, {"rank 1", "communicator is null"}, [&] {
      return Status::from_c(moeway_communicator_create(bootstrap, nullptr, rank.rank() == kOdd ? nullptr : &made));
    });
    rank.expect(made == nullptr, "a communicator was made all the same");
  });
  EXPECT_EQ(result.failures, "");
}

TEST(CreationMistakes, OfAnObjectsArgumentsAreHeardByAllRanksAndTheNextCallWorks) {
  over_all_bootstraps([](Rank& rank, const std::function<Result<Bootstrap>()>& meet) {
    Result<Bootstrap> met = meet();
    if (!rank.expect_ok(met.status(), "bootstrap")) return;
    CommunicatorOptions options;
    options.timeout_ms = kTimeoutMs;
    Result<Communicator> communicator = Communicator::create(std::move(met).value(), options);
    if (!rank.expect_ok(communicator.status(), "communicator")) return;
    const bool odd = rank.rank() == kOdd;
    const AllToAllConfig config = SmallRound(kRanks, rank.rank()).config(kTimeoutMs);
    moeway_all_to_all* made = nullptr;
    expect_hears(rank, MOEWAY_INVALID_ARGUMENT, {"rank 1", "config is null"}, [&] {
      return Status::from_c(moeway_all_to_all_create(communicator.value().get(), odd ? nullptr : &config, &made));
    });
    expect_hears(rank, MOEWAY_INVALID_ARGUMENT, {"rank 1", "all_to_all is null"}, [&] {
      return Status::from_c(moeway_all_to_all_create(communicator.value().get(), &config, odd ? nullptr : &made));
    });
    rank.expect(made == nullptr, "an object was made all the same");
    expect_works(rank, communicator.value());
  });
}

// Also if objects of its are still there.
TEST(CreationMistakes, ARankThatHasClosedItsCommunicatorIsNamed) {
  for (const As as : {As::kThreads, As::kProcesses}) {
    for (const bool barrier : {false, true}) {
      expect_runs(kRanks, as, [&](Rank& rank) {
        SmallRound kept(kRanks, rank.rank());
        if (!rank.expect_ok(kept.create(rank.communicator(), kTimeoutMs), "create")) return;
        if (rank.rank() == kOdd) {
          rank.expect_ok(rank.communicator().close(), "communicator.close");
        } else {
          SmallRound next(kRanks, rank.rank());
          expect_hears(rank, MOEWAY_PEER_LOST, {"rank 1", "closed"}, [&] {
            return barrier ? rank.communicator().barrier() : next.create(rank.communicator(), 1000);
          });
        }
        rank.expect_ok(kept.run(0), "a round of the object that was there before");
      });
    }
  }
}

}  // namespace
}  // namespace moeway::multi_rank
