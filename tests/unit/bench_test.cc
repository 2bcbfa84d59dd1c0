// The parts of `moeway bench`: where rows have to lie, what counts as the time of a replay, and that nothing wrong passes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <tuple>

#include "cli/bench/agreement.h"
#include "cli/bench/bench_check.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/inputs.h"
#include "cli/bench/tensors.h"
#include "cli/device/nccl.h"
#include "cli/device/place.h"

namespace moeway::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Series small_series(Layout layout = kExpertPadded) {
  Series series;
  series.config.num_experts = 7;
  series.config.topk = 3;
  series.config.hidden = 130;
  series.config.max_tokens = 5;
  series.config.layout = layout;
  series.config.distinct_experts = 1;
  series.tokens = {5};
  series.num_ranks = 3;
  series.sets = 2;
  series.pairs = 2;
  return series;
}

TEST(BenchInputs, RoutesDifferOnEveryRankAndInEverySet) {
  const Series series = small_series();
  const Routes routes = uniform_routes(series, 5);
  std::set<std::vector<int32_t>> all;
  for (int rank = 0; rank < series.num_ranks; ++rank) {
    for (int set = 0; set < series.sets; ++set) {
      const Batch& batch = routes.batch(set, rank);
      all.insert(batch.experts);
      ASSERT_EQ(batch.experts.size(), 15u);
      for (size_t token = 0; token < 5; ++token) {
        const std::set<int32_t> experts(&batch.experts[token * 3], &batch.experts[token * 3] + 3);
        EXPECT_EQ(experts.size(), 3u) << "an expert twice";
        EXPECT_GE(*experts.begin(), 0);
        EXPECT_LT(*experts.rbegin(), 7);
        EXPECT_NEAR(batch.weights[token * 3] + batch.weights[token * 3 + 1] + batch.weights[token * 3 + 2], 1, 1e-6);
      }
    }
  }
  EXPECT_EQ(all.size(), 6u);
}

TEST(BenchInputs, RowsOfAnExpertComeInOrderOfRankTokenAndRoute) {
  for (const Layout layout : {kExpertPadded, kExpertPacked}) {
    Series series = small_series(layout);
    if (layout == kExpertPacked) series.config.alignment = 4;
    const Routes routes = uniform_routes(series, 5);
    const int64_t capacity = 15;
    const Placement placement(series.config, capacity, routes, 1, series.num_ranks);
    // Sorted, the routes of an expert must lie in rows one after another, from its first row on.
    std::map<int32_t, std::vector<std::tuple<int, size_t, int64_t>>> of_expert;
    for (int source = 0; source < 3; ++source)
      for (size_t route = 0; route < 15; ++route)
        of_expert[routes.batch(1, source).experts[route]].emplace_back(
            source, route, placement.row(source, static_cast<int64_t>(route)));
    for (const auto& [expert, rows] : of_expert) {
      const RowRange& run = placement.runs()[static_cast<size_t>(expert)];
      EXPECT_EQ(run.count, std::ssize(rows));
      EXPECT_EQ(placement.expert_rows()[static_cast<size_t>(expert)], std::ssize(rows));
      if (layout == kExpertPadded)
        EXPECT_EQ(run.first, (expert < 3 ? expert : (expert - 3) % 2) * capacity);
      else
        EXPECT_EQ(run.first % 4, 0);
      for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(std::get<2>(rows[i]), run.first + static_cast<int64_t>(i));
    }
  }
}

TEST(BenchInputs, CountsATokenOncePerRank) {
  Routes routes;
  routes.num_experts = 4;
  routes.topk = 2;
  routes.of_rank = {{Batch{3, {0, 1, 0, 3, 3, 2}, {}}}};
  EXPECT_EQ(tokens_sent(routes, 0, 0, 2), 4);
}

RankReport report_of(int rank, const PointReport& point) {
  RankReport report;
  report.rank = rank;
  report.details = nlohmann::json(SeriesReport{{point}, {}, "", {}}).dump();
  return report;
}

TEST(BenchReport, TheTimeOfAReplayIsThatOfItsSlowestRank) {
  PointReport a, b;
  a.tokens = b.tokens = 5;
  a.pair_us = {1, 20, 3};
  b.pair_us = {10, 2, 30};
  a.dispatch_us = b.dispatch_us = {4, 5, 6};
  JobEnd end;
  end.reports = {report_of(0, a), report_of(1, b)};
  const SeriesResult result(small_series(), end);
  ASSERT_EQ(result.points.size(), 1u);
  EXPECT_EQ(result.points[0].pair.median, 20);
  EXPECT_EQ(result.points[0].pair.p10, 10);
  EXPECT_EQ(result.points[0].pair.p90, 30);
  EXPECT_EQ(result.points[0].combine_us, 15);
  EXPECT_TRUE(result.ok());
}

TEST(BenchReport, AWrongValueOrAFailureIsNoSuccess) {
  PointReport point;
  point.pair_us = point.dispatch_us = {1};
  JobEnd end;
  end.reports = {report_of(0, point)};
  end.failures = {{0, RankFailure::Kind::kFailed, "something"}};
  EXPECT_FALSE(SeriesResult(small_series(), end).ok());
  end.failures.clear();
  EXPECT_TRUE(SeriesResult(small_series(), end).ok());
  point.wrong = 1;
  end.reports = {report_of(0, point)};
  EXPECT_FALSE(SeriesResult(small_series(), end).ok());
  EXPECT_FALSE(BenchResult().ok()) << "nothing was measured";
}

// The outputs of one rank, which is the only one, as the routing wants them; then damaged.
class OneRank {
 public:
  explicit OneRank(Layout layout) : series_(small_series(layout)) {
    series_.num_ranks = 1;
    series_.row_source = layout != kTokenMajor;
    const ThreadGroup group(1);
    communicator_ = Communicator::create(Bootstrap::threads(group, 0).value()).value();
    sizes_ = all_to_all_sizes(series_.config, 0, 1).value();
    object_ = AllToAll::create(communicator_, series_.config).value();
    routes_ = uniform_routes(series_, 5);
    pattern_ = std::make_unique<Pattern>(series_.seed, series_.config, sizes_);
    rows_ = std::make_unique<ExpertRows>(series_.seed, series_.config);
    tensors = std::make_unique<BenchTensors>(series_, series_.config, sizes_, *place_);
    EXPECT_TRUE(tensors->prepare(routes_, *pattern_, *rows_, 0).ok());
  }

  // What the check says of set 1's round, after `damage`.
  std::vector<std::string> findings(const std::function<void(const BenchTensors::Pointers&)>& damage) {
    BenchCheck check({series_, series_.config, sizes_, routes_, *pattern_, *rows_, 0}, *tensors, *place_, [] {});
    EXPECT_TRUE(check.poison(1).ok());
    const Routing routing = object_.dispatch(tensors->input(1), tensors->output()).value();
    EXPECT_TRUE(object_.combine(routing, tensors->rows(), tensors->y()).ok());
    damage(tensors->at());
    EXPECT_TRUE(check.check(1, {}).ok());
    EXPECT_EQ(check.sums_checked(), 5);
    EXPECT_EQ(check.wrong(), std::ssize(check.findings()));
    return check.findings();
  }
  // The first row that holds something.
  int64_t first_row() const {
    const Placement placement(series_.config, sizes_.expert_capacity, routes_, 1, 1);
    return placement.row(0, 0);
  }
  int64_t row_bytes() const { return sizes_.row_bytes; }
  int64_t row_behind() const {
    const Placement placement(series_.config, sizes_.expert_capacity, routes_, 1, 1);
    for (const RowRange& run : placement.runs())
      if (run.count < sizes_.expert_capacity) return run.first + run.count;
    return -1;
  }

  std::unique_ptr<BenchTensors> tensors;

 private:
  Series series_;
  std::unique_ptr<Place> place_ = make_host_place();
  Communicator communicator_;
  AllToAllSizes sizes_{};
  AllToAll object_;
  Routes routes_;
  std::unique_ptr<Pattern> pattern_;
  std::unique_ptr<ExpertRows> rows_;
};

TEST(BenchCheck, PassesWhatIsRightAndNamesWhatIsWrong) {
  for (const Layout layout : {kExpertPadded, kExpertPacked, kTokenMajor}) {
    OneRank rank(layout);
    EXPECT_THAT(rank.findings([](const auto&) {}), IsEmpty());
    const int64_t row = rank.first_row();
    auto found = rank.findings([&](const auto& at) { at.x[row * rank.row_bytes() + 2] ^= std::byte{1}; });
    ASSERT_EQ(found.size(), 1u);
    EXPECT_THAT(found[0], HasSubstr("element 1: expected"));
    found = rank.findings([](const auto& at) { at.num_rows[0] ^= std::byte{1}; });
    ASSERT_EQ(found.size(), 1u);
    EXPECT_THAT(found[0], HasSubstr("number of rows of expert 0"));
    found = rank.findings([](const auto& at) { at.y[130 * 2 * 3] ^= std::byte{1}; });
    ASSERT_EQ(found.size(), 1u);
    EXPECT_THAT(found[0], HasSubstr("rank 0, set 1, sum of token 3, element 0: expected"));
  }
}

TEST(BenchCheck, FindsAWrongSourceAndARowBehindTheLast) {
  OneRank rank(kExpertPadded);
  const int64_t row = rank.first_row(), behind = rank.row_behind();
  auto found = rank.findings([&](const auto& at) { at.row_source[row * 12 + 4] ^= std::byte{1}; });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0], HasSubstr("its source came as rank 0, token 1, k 0"));
  ASSERT_GE(behind, 0);
  found = rank.findings([&](const auto& at) { at.x[behind * rank.row_bytes()] = std::byte{0}; });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0], HasSubstr("holds nothing"));
}

TEST(BenchCheck, FindsAWrongLocalRouteOfTokenMajor) {
  OneRank rank(kTokenMajor);
  auto found = rank.findings([](const auto& at) { at.topk_weights[4 * 3 * 2] ^= std::byte{1}; });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0], HasSubstr("route 0 of row 2: expected local expert"));
}

TEST(Agreement, AFailureOfOneRankIsTheFailureOfAll) {
  const ThreadGroup group(3);
  const Agreement agreement(3);
  std::vector<Status> heard(3), after(3);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.emplace_back([&, rank] {
        Communicator communicator = Communicator::create(Bootstrap::threads(group, rank).value()).value();
        if (rank == 0) agreement.shared()[5] = std::byte{42};
        const auto at = static_cast<size_t>(rank);
        heard[at] = agreement.agree(communicator, rank == 1 ? Status(MOEWAY_OUT_OF_MEMORY, "no room") : Status());
        after[at] = agreement.agree(communicator, Status());
        EXPECT_EQ(agreement.shared()[5], std::byte{42});
      });
    }
  }
  EXPECT_EQ(heard[1].message(), "no room");
  for (const size_t rank : {0u, 2u}) {
    EXPECT_EQ(heard[rank].code(), MOEWAY_OUT_OF_MEMORY);
    EXPECT_EQ(heard[rank].message(), "rank 1: no room");
  }
  for (const Status& status : after) EXPECT_TRUE(status.ok());
}

TEST(Nccl, SaysThatItIsNotThere) {
  const auto loaded = Nccl::load("libnccl-of-nobody.so");
  EXPECT_EQ(loaded.status().code(), MOEWAY_UNAVAILABLE);
  EXPECT_THAT(loaded.status().message(), HasSubstr("libnccl-of-nobody.so"));
  const auto other = Nccl::load("libc.so.6");
  EXPECT_EQ(other.status().message(), "libc.so.6 has no ncclGetVersion");
}

}  // namespace
}  // namespace moeway::cli
