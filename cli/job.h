// Starts the ranks of a local job, watches them, and collects what they report. Whatever happens to a rank, run_job
// returns: a rank that dies or hangs is named and the others are ended.
#pragma once

#include <moeway/bootstrap.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cli/progress_board.h"
#include "cli/rank_report.h"

namespace moeway::cli {

struct JobOptions {
  int num_ranks = 1;
  bool as_threads = false;  // All ranks in one process; else a process each.
  std::chrono::milliseconds timeout{kDefaultTimeout};
  // What a rank does. Must not throw.
  std::function<RankReport(int rank, Result<Bootstrap> bootstrap, RankProgress& progress)> body;
  // Called many times a second while the ranks run. May be empty.
  std::function<void(const ProgressBoard& board)> on_tick;
};

struct RankFailure {
  enum class Kind { kDied, kHung, kFailed };  // Its process ended; it had to be ended; it says so itself.
  int rank = 0;
  Kind kind = Kind::kFailed;
  std::string message;
};

struct JobEnd {
  std::vector<RankReport> reports;    // One per rank; of ranks that could not report, only `rank` and `failure`.
  std::vector<RankFailure> failures;  // The likely causes first: dead ranks, then hung ones, then the others.
  int signal = 0;                     // The signal that ended the job, 0 if none.
};

// Must be called before this process has a second thread: ranks are forked off.
JobEnd run_job(const JobOptions& options);

}  // namespace moeway::cli
