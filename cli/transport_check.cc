#include "cli/transport_check.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "cli/device_choice.h"
#include "cli/rank_job.h"
#include "cli/router.h"
#include "cli/run_summary.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

constexpr int kRanks = 2;
constexpr std::chrono::milliseconds kTimeout{5000};

RunSetup small_job(const Routes& routes, bool as_threads) {
  RunSetup setup;
  setup.ranks = kRanks;
  setup.as_threads = as_threads;
  setup.job.routes = &routes;
  setup.job.rounds = 3;
  setup.job.timeout = kTimeout;
  setup.job.config.num_experts = routes.num_experts;
  setup.job.config.topk = routes.topk;
  setup.job.config.hidden = 256;
  setup.job.config.max_tokens = routes.max_tokens;
  setup.job.config.timeout_ms = kTimeout.count();
  return setup;
}

// A transport of this build, tried with two ranks: on the host, or dealt to `devices`.
TransportVerdict try_transport(const char* name, bool as_threads, const std::vector<int>& devices, int& signal) {
  TransportVerdict verdict{name, true, false, "", ""};
  RouterOptions router;
  router.num_ranks = kRanks;
  router.num_experts = 5;
  router.topk = 2;
  router.tokens = 16;
  router.rounds = 3;
  const Routes routes = skewed_routes(router);
  RunSetup setup = small_job(routes, as_threads);
  setup.job.devices = devices;
  JobOptions job;
  job.num_ranks = kRanks;
  job.as_threads = as_threads;
  job.timeout = kTimeout;
  job.body = [&setup](int, Result<Bootstrap> bootstrap, RankProgress& progress) {
    return run_rank(setup.job, std::move(bootstrap), progress);
  };
  const auto start = std::chrono::steady_clock::now();
  const JobEnd end = run_job(job);
  setup.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  signal = end.signal;
  const RunSummary summary(setup, end);
  verdict.works = summary.ok();
  if (summary.ok()) {
    verdict.why = fmt::format("{} ranks{} moved {} and {} in {}, start to end; every value was right", kRanks,
                              devices.empty()       ? ""
                              : devices.size() == 1 ? " on one GPU"
                                                    : " on two GPUs",
                              counted(summary.rows_checked, "row"), counted(summary.sums_checked, "sum"),
                              duration_text(setup.seconds * 1e6));
  } else {
    verdict.why = summary.failures.empty()
                      ? mismatch_text(summary.mismatches.front())
                      : fmt::format("rank {}: {}", summary.failures.front().rank, summary.failures.front().message);
    verdict.change = "what the message names; a job that ought to work and does not is a fault worth reporting";
  }
  return verdict;
}

std::string gpu_lack(const Devices& devices) {
  if (devices.gpus.empty()) return "no GPU: " + devices.gpu_error;
  if (devices.gpus.size() < 2) return "only one GPU";
  if (devices.gpu_peer_pairs == 0) return "no GPU can reach another one's memory";
  return "";
}

// A transport that this build does not have. `lack`: what the machine would miss as well, "" if nothing.
TransportVerdict not_built(const char* name, const std::string& lack, const std::string& change) {
  return {name, false, false,
          "not in this build" + (lack.empty() ? "; this machine has what it needs"
                                              : "; besides, this machine lacks what it needs: " + lack),
          change};
}

TransportVerdict try_nvlink(const Devices& devices, int& signal) {
  const std::string lack = gpu_lack(devices);
  if (!has_cuda()) {
    return not_built("nvlink", lack,
                     "a moeway built with -DMOEWAY_CUDA=ON, on GPUs that reach each other's memory (NVLink)");
  }
  if (devices.gpus.empty()) return {"nvlink", true, false, lack, "a GPU, with its driver"};
  load_kernels_early();
  TransportVerdict verdict = try_transport("nvlink", true, lack.empty() ? std::vector{0, 1} : std::vector{0}, signal);
  if (!lack.empty() && verdict.works) verdict.why += "; more GPUs cannot be used: " + lack;
  return verdict;
}

}  // namespace

std::vector<TransportVerdict> judge_transports(const Devices& devices, int& signal) {
  std::vector<TransportVerdict> verdicts;
  verdicts.push_back(try_transport("host processes", false, {}, signal));
  if (signal != 0) return verdicts;
  verdicts.push_back(try_transport("host threads", true, {}, signal));
  if (signal != 0) return verdicts;
  verdicts.push_back(try_nvlink(devices, signal));
  std::string lack = devices.nvshmem.found ? "" : devices.nvshmem.name + " cannot be loaded";
  if (devices.gpus.empty()) lack = "no GPU: " + devices.gpu_error + (lack.empty() ? "" : "; " + lack);
  verdicts.push_back(not_built("nvshmem", lack, "a moeway built with it, NVSHMEM 3, and GPUs"));
  verdicts.push_back(not_built("libfabric", devices.libfabric.found ? "" : devices.libfabric.name + " cannot be loaded",
                               "a moeway built with it, and libfabric 1.17 or later"));
  return verdicts;
}

}  // namespace moeway::cli
