// What a whole job came to: the sum of the ranks' reports, as both the table and the JSON show it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/job.h"
#include "cli/rank_job.h"
#include "cli/rank_report.h"

namespace moeway::cli {

// What was asked for.
struct RunSetup {
  RankJob job;
  int ranks = 1;
  bool as_threads = false;
  bool joined = false;      // The ranks are those of a launcher.
  std::string device_note;  // Why the ranks are on the host though nobody asked for that; "" if somebody did.
  double seconds = 0;       // From the first rank's start to the last one's end.
};

// The job that a setup stands for; what the caller adds besides is when it is told of progress. The setup outlives it.
JobOptions job_of(const RunSetup& setup);

struct PhaseSummary {
  double median_us = 0, p90_us = 0;  // Over the timed rounds, of the slowest rank's time.
};

struct RunSummary {
  RunSummary(const RunSetup& setup, const JobEnd& end);

  bool ok() const { return failures.empty() && num_mismatches == 0; }

  std::string transport;
  Moved moved;  // Sums over ranks.
  int64_t rows_checked = 0, sums_checked = 0;
  // What was sent, and what would have been had every route been sent by itself, both ways.
  int64_t dispatch_bytes = 0, dispatch_bytes_by_route = 0;
  int64_t combine_bytes = 0, combine_bytes_by_route = 0;
  std::vector<int64_t> expert_rows;  // By expert.
  int64_t timed_rounds = 0;
  std::array<PhaseSummary, kNumTimedPhases> phases;
  int64_t num_mismatches = 0;
  std::vector<Mismatch> mismatches;
  std::vector<RankFailure> failures;
  std::vector<RankReport> reports;
};

// "rank 3, round 17: row 12 of expert 29 (rank 1, token 45, k 3), element 77: expected 1.5 (0x3fc0), got nan (0xffff)"
std::string mismatch_text(const Mismatch& mismatch);

}  // namespace moeway::cli
