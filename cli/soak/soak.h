// `moeway run --soak`: jobs of random shapes, one after another, each value checked, until the time is up or one fails.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/run_summary.h"
#include "cli/soak/iteration.h"

namespace moeway::cli {

struct Soak {
  SoakLimits limits;
  uint64_t seed = 0;
  std::chrono::milliseconds duration{0};  // A job that runs when it is over is not cut off.
  int64_t first = 0;                      // The iteration to begin with.
  bool only_first = false;
  bool quiet = false;
};

// What the jobs came to. Takes no more memory the longer it runs.
struct SoakResult {
  double seconds = 0;
  int64_t iterations = 0, rounds = 0;  // That were right.
  int64_t rows_checked = 0, sums_checked = 0;
  std::map<std::string, std::map<std::string, int64_t>> drawn;  // How many jobs, or objects, had each of some choices.
  int signal = 0;                                               // That ended it; 0 if none.
  // The iteration that failed, and what it said.
  std::unique_ptr<Iteration> failed;
  RunSetup failed_setup;
  std::unique_ptr<RunSummary> failure;

  bool ok() const { return failed == nullptr && signal == 0; }
};

// Must be called before this process has a second thread, as run_job.
SoakResult run_soak(const Soak& soak);

// The table without the verdict; one line if all was right, else what went wrong, and how to repeat that alone.
std::string soak_table(const Soak& soak, const SoakResult& result);
std::string soak_verdict(const Soak& soak, const SoakResult& result);
nlohmann::json soak_json(const Soak& soak, const SoakResult& result, const std::vector<std::string>& command);

}  // namespace moeway::cli
