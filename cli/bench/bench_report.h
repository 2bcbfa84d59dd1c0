// What `moeway bench` prints, and its JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/bench/bench_options.h"
#include "cli/bench/series.h"
#include "cli/job.h"

namespace moeway::cli {

// Of the slowest rank in each replay, microseconds. Without values: all 0.
struct Times {
  bool measured = false;
  double median = 0, p10 = 0, p90 = 0;
};

struct PointResult {
  int64_t tokens = 0;
  Times pair, dispatch;
  double combine_us = 0;  // What a pair takes longer than a dispatch alone, by their medians.
  int64_t rows_checked = 0, sums_checked = 0, wrong = 0;
  std::vector<std::string> findings;
  int64_t heap_bytes = 0, workspace_bytes = 0;   // Of rank 0.
  double dispatch_bytes = 0, combine_bytes = 0;  // Of the rank that has most.
};

struct BaselineResult {
  std::string name;
  int64_t tokens = 0, dispatch_bytes = 0, combine_bytes = 0;
  Times pair;
  int64_t wrong = 0;
  std::string skipped;
};

// A series, and what its job came to: for each number of tokens that all ranks have measured.
struct SeriesResult {
  SeriesResult(const Series& of, const JobEnd& end);
  bool ok() const;

  Series series;
  std::string transport;
  DeviceReport device;
  std::string nccl;
  std::vector<PointResult> points;
  std::vector<BaselineResult> baselines;
  std::vector<RankFailure> failures;
};

struct BenchResult {
  std::vector<SeriesResult> series, baselines;
  double seconds = 0;
  bool ok() const;  // All values were right, and every rank has finished. Baselines too.
};

std::string bench_head(const BenchOptions& options, const DeviceChoice& choice, const BenchResult& result);
// A table for a series, with the baselines of its type beside it.
std::string series_table(const SeriesResult& result, const std::vector<SeriesResult>& baselines);
// One line if all was right, else what went wrong first.
std::string bench_verdict(const BenchResult& result);
nlohmann::json bench_json(const BenchOptions& options, const DeviceChoice& choice, const BenchResult& result,
                          const std::vector<std::string>& command);

}  // namespace moeway::cli
