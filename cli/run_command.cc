#include "cli/run_command.h"

#include <fmt/format.h>
#include <moeway/moeway.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/buffers.h"
#include "cli/device_choice.h"
#include "cli/job.h"
#include "cli/launched.h"
#include "cli/machine.h"
#include "cli/progress_line.h"
#include "cli/run_options.h"
#include "cli/run_report.h"
#include "cli/signals.h"
#include "cli/soak/soak.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

constexpr int kWrong = 1, kUsage = 2;

int complain(int code, const std::string& message) {
  fmt::print(stderr, "moeway run: {}\n", message);
  return code;
}

// A job that does not fit would be ended by the kernel in mid-run, without a word; better to say so before.
std::string memory_shortage(const AllToAllConfig& config, int num_ranks, bool joined) {
  double needed = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Result<AllToAllSizes> sizes = all_to_all_sizes(config, rank, num_ranks);
    if (!sizes.ok()) return "";
    needed += static_cast<double>(sizes.value().heap_bytes) + static_cast<double>(sizes.value().workspace_bytes) +
              buffers_bytes(config, sizes.value());
  }
  const double available = static_cast<double>(look_at_machine().memory_available_bytes);
  if (joined || available == 0 || needed <= available) return "";  // Launched ranks may be spread over machines.
  return fmt::format(
      "the ranks need {}, and this machine has {} available; fewer --ranks, --tokens or a smaller "
      "--hidden need less, `moeway plan` shows how much",
      bytes_text(needed), bytes_text(available));
}

int conclude(const RunOptions& options, const RunSetup& setup, const JobEnd& end,
             const std::vector<std::string>& command_line) {
  const RunSummary summary(setup, end);
  const std::string verdict = run_verdict(setup, summary);
  if (options.json_output.text_wanted() && !options.quiet) {
    fmt::print("{}", run_table(setup, summary, use_unicode()));
    if (summary.ok()) fmt::print("\n{}\n", verdict);
    std::fflush(stdout);
  }
  if (!summary.ok()) complain(kWrong, verdict);
  if (const Status written = options.json_output.write(run_json(setup, summary, command_line)); !written.ok())
    return complain(kWrong, written.message());
  return summary.ok() ? 0 : kWrong;
}

int run_local(const RunOptions& options, RunSetup& setup, const std::vector<std::string>& command_line) {
  JobOptions job = job_of(setup);
  const auto start = std::chrono::steady_clock::now();
  JobEnd end;
  {
    ProgressLine line(setup.job.rounds, options.quiet);
    job.on_tick = [&line](const ProgressBoard& board) { line.show(board.slowest_round()); };
    end = run_job(job);
  }
  setup.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (end.signal != 0) {
    complain(kWrong, fmt::format("signal {} came; the ranks were ended", end.signal));
    end_by(end.signal);
  }
  return conclude(options, setup, end, command_line);
}

int run_joined(const RunOptions& options, RunSetup& setup, Bootstrap bootstrap,
               const std::vector<std::string>& command_line) {
  const int rank = bootstrap.rank();
  const auto start = std::chrono::steady_clock::now();
  const JobEnd end = run_launched(setup.job, std::move(bootstrap));
  setup.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // Every rank knows how all fared, if they could still talk; one of them speaks for all.
  const bool spoken_for = rank != 0 && std::ssize(end.reports) == setup.ranks;
  if (!spoken_for) return conclude(options, setup, end, command_line);
  return RunSummary(setup, end).ok() ? 0 : kWrong;
}

// Where ranks are, and as what. "" or why they cannot be there.
std::string settle_devices(const RunOptions& options, const DeviceChoice& choice, RunSetup& setup) {
  setup.job.devices = choice.devices;
  setup.device_note = choice.note;
  const std::string shared = shared_by_processes(choice, setup.ranks);
  setup.as_threads = !options.join && options.as_threads.value_or(!shared.empty());
  if (!choice.on_host()) load_kernels_early();
  if (shared.empty() || setup.as_threads) return "";
  return (options.join ? "--join: " : "--ranks-as processes: ") + shared;
}

int run_soak_command(const RunOptions& options, const DeviceChoice& choice,
                     const std::vector<std::string>& command_line) {
  Soak soak;
  soak.limits = soak_limits(options);
  soak.limits.devices = choice.devices;
  if (const std::string shared = shared_by_processes(choice, soak.limits.ranks); !shared.empty()) {
    if (!options.as_threads.value_or(true)) return complain(kUsage, "--ranks-as processes: " + shared);
    soak.limits.as_threads = true;
  }
  if (!choice.on_host()) load_kernels_early();
  soak.seed = options.seed;
  soak.duration = std::chrono::milliseconds(options.soak_ms.value_or(0));
  soak.first = options.soak_iteration.value_or(0);
  soak.only_first = options.soak_iteration.has_value();
  soak.quiet = options.quiet;
  const SoakResult result = run_soak(soak);
  if (options.json_output.text_wanted() && !options.quiet) {
    fmt::print("{}", soak_table(soak, result));
    if (result.ok()) fmt::print("\n{}\n", soak_verdict(soak, result));
    std::fflush(stdout);
  }
  if (result.signal != 0) {
    complain(kWrong, fmt::format("signal {} came; the ranks were ended", result.signal));
    end_by(result.signal);
  }
  if (!result.ok()) complain(kWrong, soak_verdict(soak, result));
  if (const Status written = options.json_output.write(soak_json(soak, result, command_line)); !written.ok())
    return complain(kWrong, written.message());
  return result.ok() ? 0 : kWrong;
}

int run(const RunOptions& options, const std::vector<std::string>& command_line) {
  if (const std::string wrong = contradiction(options); !wrong.empty()) return complain(kUsage, wrong);
  if (const Status writable = options.json_output.check(); !writable.ok()) return complain(kUsage, writable.message());
  RunSetup setup;
  setup.ranks = options.shape.ranks.value_or(kDefaultRanks);
  setup.joined = options.join;
  setup.job.timeout = std::chrono::milliseconds(options.timeout_ms);
  const Result<DeviceChoice> choice = choose_devices(options.device);  // Forks, so before anything makes threads.
  if (!choice.ok())
    return complain(choice.status().code() == MOEWAY_INVALID_ARGUMENT ? kUsage : kWrong, choice.status().message());
  if (soak_wanted(options)) return run_soak_command(options, choice.value(), command_line);
  Result<Bootstrap> bootstrap = Status();
  if (options.join) {
    bootstrap = Bootstrap::env(setup.job.timeout);
    if (!bootstrap.ok())
      return complain(bootstrap.status().code() == MOEWAY_INVALID_ARGUMENT ? kUsage : kWrong,
                      "--join: " + bootstrap.status().message());
    setup.ranks = bootstrap.value().size();
  } else if (const std::string launcher = launcher_name(); !launcher.empty()) {
    fmt::print(stderr, "moeway run: note: started by {} without --join: this process runs a job of its own\n",
               launcher);
  }
  if (const std::string wrong = settle_devices(options, choice.value(), setup); !wrong.empty())
    return complain(kUsage, wrong);
  if (const std::string wrong = wrong_replicas(options.shape, setup.ranks); !wrong.empty())
    return complain(kUsage, wrong);
  Result<Routes> routes = routes_of(options, setup.ranks, /*drawn=*/false);
  if (!routes.ok()) return complain(kUsage, routes.status().message());
  setup.job.routes = &routes.value();
  setup.job.rounds = options.rounds;
  setup.job.seed = options.seed;
  setup.job.config = run_config(options, routes.value());
  if (const auto sizes = all_to_all_sizes(setup.job.config, 0, setup.ranks); !sizes.ok())
    return complain(kUsage, sizes.status().message());
  if (const std::string shortage = memory_shortage(setup.job.config, setup.ranks, options.join); !shortage.empty())
    return complain(kWrong, shortage);
  if (options.routes_file.empty()) routes = routes_of(options, setup.ranks, /*drawn=*/true);
  if (options.join) return run_joined(options, setup, std::move(bootstrap).value(), command_line);
  return run_local(options, setup, command_line);
}

}  // namespace

std::function<int()> add_run(CLI::App& app, const std::vector<std::string>& command_line) {
  CLI::App* command = app.add_subcommand("run", "Run a whole job on local ranks and check every value");
  auto options = std::make_shared<RunOptions>();
  add_run_options(*command, *options);
  return [options, &command_line] { return run(*options, command_line); };
}

}  // namespace moeway::cli
