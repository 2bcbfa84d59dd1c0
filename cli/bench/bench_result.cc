#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/bench/bench_report.h"
#include "cli/quantile.h"

namespace moeway::cli {
namespace {

constexpr size_t kKeptFindings = 8;

// `of_ranks`: the times of each rank, a value for each replay.
Times slowest(const std::vector<const std::vector<double>*>& of_ranks) {
  std::vector<double> most;
  for (const std::vector<double>* times : of_ranks) {
    if (most.empty()) most.resize(times->size());
    if (times->size() != most.size()) return {};
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], (*times)[i]);
  }
  if (most.empty()) return {};
  return {true, quantile(most, 0.5), quantile(most, 0.1), quantile(most, 0.9)};
}

PointResult point_of(const std::vector<const PointReport*>& of_ranks) {
  PointResult result;
  result.tokens = of_ranks.front()->tokens;
  result.heap_bytes = of_ranks.front()->heap_bytes;
  result.workspace_bytes = of_ranks.front()->workspace_bytes;
  std::vector<const std::vector<double>*> pairs, dispatches;
  for (const PointReport* report : of_ranks) {
    pairs.push_back(&report->pair_us);
    dispatches.push_back(&report->dispatch_us);
    result.rows_checked += report->rows_checked;
    result.sums_checked += report->sums_checked;
    result.wrong += report->wrong;
    for (const std::string& finding : report->findings)
      if (result.findings.size() < kKeptFindings) result.findings.push_back(finding);
    result.dispatch_bytes = std::max(result.dispatch_bytes, report->dispatch_bytes);
    result.combine_bytes = std::max(result.combine_bytes, report->combine_bytes);
  }
  result.pair = slowest(pairs);
  result.dispatch = slowest(dispatches);
  result.combine_us = std::max(0.0, result.pair.median - result.dispatch.median);
  return result;
}

BaselineResult baseline_of(const std::vector<const BaselineReport*>& of_ranks) {
  const BaselineReport& first = *of_ranks.front();
  BaselineResult result;
  result.name = first.name;
  result.tokens = first.tokens;
  std::vector<const std::vector<double>*> pairs;
  for (const BaselineReport* report : of_ranks) {
    pairs.push_back(&report->pair_us);
    result.dispatch_bytes = std::max(result.dispatch_bytes, report->dispatch_bytes);
    result.combine_bytes = std::max(result.combine_bytes, report->combine_bytes);
    result.wrong += report->wrong;
    if (result.skipped.empty()) result.skipped = report->skipped;
  }
  if (result.skipped.empty()) result.pair = slowest(pairs);
  return result;
}

// The i-th of each rank's list.
template <class T>
std::vector<const T*> column(const std::vector<const std::vector<T>*>& lists, size_t i) {
  std::vector<const T*> found;
  found.reserve(lists.size());
  for (const std::vector<T>* list : lists) found.push_back(&(*list)[i]);
  return found;
}

template <class T>
size_t shortest(const std::vector<const std::vector<T>*>& lists) {
  size_t length = lists.empty() ? 0 : lists.front()->size();
  for (const std::vector<T>* list : lists) length = std::min(length, list->size());
  return length;
}

}  // namespace

SeriesResult::SeriesResult(const Series& of, const JobEnd& end) : series(of), failures(end.failures) {
  std::vector<SeriesReport> reports;
  for (const RankReport& rank : end.reports) {
    if (transport.empty()) transport = rank.transport;
    const auto parsed = nlohmann::json::parse(rank.details, nullptr, /*allow_exceptions=*/false);
    reports.push_back(parsed.is_object() ? parsed.get<SeriesReport>() : SeriesReport());
  }
  std::vector<const std::vector<PointReport>*> point_lists;
  std::vector<const std::vector<BaselineReport>*> baseline_lists;
  for (const SeriesReport& report : reports) {
    if (device.name.empty()) device = report.device;
    if (nccl.empty()) nccl = report.nccl;
    point_lists.push_back(&report.points);
    baseline_lists.push_back(&report.baselines);
  }
  for (size_t i = 0; i < shortest(point_lists); ++i) points.push_back(point_of(column(point_lists, i)));
  for (size_t i = 0; i < shortest(baseline_lists); ++i) baselines.push_back(baseline_of(column(baseline_lists, i)));
}

bool SeriesResult::ok() const {
  const auto right = [](const auto& result) { return result.wrong == 0; };
  return failures.empty() && std::all_of(points.begin(), points.end(), right) &&
         std::all_of(baselines.begin(), baselines.end(), right);
}

bool BenchResult::ok() const {
  const auto all_ok = [](const std::vector<SeriesResult>& list) {
    return std::all_of(list.begin(), list.end(), [](const SeriesResult& one) { return one.ok(); });
  };
  return !series.empty() && all_ok(series) && all_ok(baselines);
}

}  // namespace moeway::cli
