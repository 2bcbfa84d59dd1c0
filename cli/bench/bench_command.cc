#include "cli/bench/bench_command.h"

#include <fmt/format.h>
#include <moeway/moeway.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench/baseline.h"
#include "cli/bench/bench_options.h"
#include "cli/bench/bench_rank.h"
#include "cli/bench/bench_report.h"
#include "cli/bench/tensors.h"
#include "cli/job.h"
#include "cli/machine.h"
#include "cli/progress_line.h"
#include "cli/signals.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

constexpr int kWrong = 1, kUsage = 2;

int complain(int code, const std::string& message) {
  fmt::print(stderr, "moeway bench: {}\n", message);
  return code;
}

// "" if the library takes the shape, and the host, if ranks are there, has the memory; else why not.
std::string refused(const Series& series, bool& too_large) {
  double needed = 0;
  for (int rank = 0; rank < series.num_ranks; ++rank) {
    const Result<AllToAllSizes> sizes = all_to_all_sizes(series.config, rank, series.num_ranks);
    if (!sizes.ok()) return sizes.status().message();
    needed += static_cast<double>(sizes.value().heap_bytes + sizes.value().workspace_bytes) +
              tensors_bytes(series, series.config, sizes.value());
  }
  const auto available = static_cast<double>(look_at_machine().memory_available_bytes);
  too_large = series.on_host() && available > 0 && needed > available;
  if (!too_large) return "";
  return fmt::format(
      "{} tokens need {}, and this machine has {} available; fewer --ranks, --tokens, --experts or a smaller --hidden "
      "need less",
      series.config.max_tokens, bytes_text(needed), bytes_text(available));
}

class Bench {
 public:
  Bench(const BenchOptions& options, const DeviceChoice& choice)
      : options_(options), choice_(choice), series_(series_of(options, choice)) {
    if (!choice.on_host() && !options.no_baselines) baselines_ = baseline_series_of(series_);
    for (const Series& series : series_) total_ += series.steps() * std::ssize(series.tokens);
    for (const Series& series : baselines_) total_ += kBaselineSteps * std::ssize(series.tokens);
  }

  const std::vector<Series>& series() const { return series_; }
  // 0, or the signal that ended it.
  int run(BenchResult& result) {
    ProgressLine line(total_, options_.quiet, "bench", "step");
    for (const Series& series : series_) {
      const Agreement agreement(series.num_ranks);
      const auto body = [&](int, Result<Bootstrap> bootstrap, RankProgress& progress) {
        return run_bench_rank(series, agreement, std::move(bootstrap), progress);
      };
      const JobEnd end = run_one(series, body, line, series.steps());
      result.series.emplace_back(series, end);
      if (end.signal != 0) return end.signal;
    }
    for (const Series& series : baselines_) {
      const Agreement agreement(series.num_ranks);
      const auto body = [&](int, Result<Bootstrap> bootstrap, RankProgress& progress) {
        return run_baseline_rank(series, options_.nccl, agreement, std::move(bootstrap), progress);
      };
      const JobEnd end = run_one(series, body, line, kBaselineSteps);
      result.baselines.emplace_back(series, end);
      if (end.signal != 0) return end.signal;
    }
    return 0;
  }

 private:
  template <class Body>
  JobEnd run_one(const Series& series, const Body& body, ProgressLine& line, int64_t steps) {
    JobOptions job;
    job.num_ranks = series.num_ranks;
    job.as_threads = !options_.processes;
    job.timeout = series.timeout;
    job.body = body;
    job.on_tick = [&](const ProgressBoard& board) { line.show(done_ + board.slowest_round()); };
    JobEnd end = run_job(job);
    done_ += steps * std::ssize(series.tokens);
    return end;
  }

  const BenchOptions& options_;
  const DeviceChoice& choice_;
  std::vector<Series> series_, baselines_;
  int64_t total_ = 0, done_ = 0;
};

// Baselines that could not be had are said aloud, each reason once.
void name_skipped(const BenchResult& result) {
  std::string last;
  for (const SeriesResult& series : result.baselines)
    for (const BaselineResult& baseline : series.baselines)
      if (!baseline.skipped.empty() && baseline.skipped != last) {
        last = baseline.skipped;
        fmt::print(stderr, "moeway bench: SKIPPED: {} with {} tokens: {}\n", baseline.name, baseline.tokens, last);
      }
}

int run(const BenchOptions& options, const std::vector<std::string>& command_line) {
  if (const std::string wrong = contradiction(options); !wrong.empty()) return complain(kUsage, wrong);
  if (const Status writable = options.json_output.check(); !writable.ok()) return complain(kUsage, writable.message());
  const Result<DeviceChoice> choice = choose_devices(options.device);
  if (!choice.ok())
    return complain(choice.status().code() == MOEWAY_INVALID_ARGUMENT ? kUsage : kWrong, choice.status().message());
  if (const std::string shared = shared_by_processes(choice.value(), options.ranks);
      options.processes && !shared.empty())
    return complain(kUsage, "--processes: " + shared);
  if (!choice.value().on_host()) load_kernels_early();
  Bench bench(options, choice.value());
  for (const Series& series : bench.series()) {
    bool too_large = false;
    if (const std::string why = refused(series, too_large); !why.empty())
      return complain(too_large ? kWrong : kUsage, why);
  }
  const bool table = options.json_output.text_wanted() && !options.quiet;
  BenchResult result;
  const auto start = std::chrono::steady_clock::now();
  if (const int signal = bench.run(result); signal != 0) {
    complain(kWrong, fmt::format("signal {} came; the ranks were ended", signal));
    end_by(signal);
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (table) {
    fmt::print("{}", bench_head(options, choice.value(), result));
    for (const SeriesResult& series : result.series) fmt::print("{}", series_table(series, result.baselines));
    if (result.ok()) fmt::print("\n{}\n", bench_verdict(result));
    std::fflush(stdout);
  }
  name_skipped(result);
  if (!result.ok()) complain(kWrong, bench_verdict(result));
  const auto json = bench_json(options, choice.value(), result, command_line);
  if (const Status written = options.json_output.write(json); !written.ok()) return complain(kWrong, written.message());
  return result.ok() ? 0 : kWrong;
}

}  // namespace

std::function<int()> add_bench(CLI::App& app, const std::vector<std::string>& command_line) {
  CLI::App* command = app.add_subcommand("bench", "How long dispatch and combine take, with every value checked");
  auto options = std::make_shared<BenchOptions>();
  add_bench_options(*command, *options);
  return [options, &command_line] { return run(*options, command_line); };
}

}  // namespace moeway::cli
