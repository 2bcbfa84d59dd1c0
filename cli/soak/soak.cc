#include "cli/soak/soak.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/job.h"
#include "cli/progress_line.h"
#include "cli/shape_options.h"

namespace moeway::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void count_choices(const Iteration& iteration, SoakResult& result) {
  ++result.drawn["ranks"][fmt::format("{}", iteration.ranks)];
  ++result.drawn["ranks_as"][iteration.as_threads ? "threads" : "processes"];
  for (const ObjectJob* object : iteration.objects()) {
    const AllToAllConfig& config = object->config;
    ++result.drawn["layout"][layout_name(config.layout)];
    ++result.drawn["weights"][weights_name(config.weights)];
    ++result.drawn["dispatch_dtype"][moeway_dtype_name(config.dispatch_dtype)];
    ++result.drawn["execution"][execution_name(config.execution)];
  }
}

// Adds the job to the result; false if it was not right.
bool take_job(std::unique_ptr<Iteration> iteration, const RunSetup& setup, const JobEnd& end, SoakResult& result) {
  auto summary = std::make_unique<RunSummary>(setup, end);
  if (!summary->ok()) {
    result.failed = std::move(iteration);
    result.failed_setup = setup;
    result.failure = std::move(summary);
    return false;
  }
  ++result.iterations;
  result.rounds += setup.job.rounds;
  result.rows_checked += summary->rows_checked;
  result.sums_checked += summary->sums_checked;
  count_choices(*iteration, result);
  return true;
}

}  // namespace

SoakResult run_soak(const Soak& soak) {
  SoakResult result;
  const Clock::time_point start = Clock::now();
  const double whole = std::chrono::duration<double>(soak.duration).count();
  ProgressLine line(std::max<int64_t>(static_cast<int64_t>(whole), 1), soak.quiet || soak.only_first, "run", "second");
  for (int64_t number = soak.first;; ++number) {
    std::unique_ptr<Iteration> iteration = draw_iteration(soak.limits, soak.seed, number);
    RunSetup setup;
    setup.job = iteration->job;
    setup.ranks = iteration->ranks;
    setup.as_threads = iteration->as_threads;
    JobOptions job = job_of(setup);
    job.on_tick = [&](const ProgressBoard&) { line.show(static_cast<int64_t>(seconds_since(start))); };
    const Clock::time_point job_start = Clock::now();
    const JobEnd end = run_job(job);
    setup.seconds = seconds_since(job_start);
    result.seconds = seconds_since(start);
    result.signal = end.signal;
    if (end.signal != 0 || !take_job(std::move(iteration), setup, end, result)) break;
    if (soak.only_first || result.seconds >= whole) break;
  }
  return result;
}

}  // namespace moeway::cli
