#include "cli/run_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/quantile.h"

namespace moeway::cli {

JobOptions job_of(const RunSetup& setup) {
  JobOptions job;
  job.num_ranks = setup.ranks;
  job.as_threads = setup.as_threads;
  job.timeout = setup.job.timeout;
  job.body = [&setup](int, Result<Bootstrap> bootstrap, RankProgress& progress) {
    return run_rank(setup.job, std::move(bootstrap), progress);
  };
  return job;
}

RunSummary::RunSummary(const RunSetup& setup, const JobEnd& end) : failures(end.failures), reports(end.reports) {
  const AllToAllConfig& config = setup.job.config;
  expert_rows.resize(static_cast<size_t>(config.num_experts));
  timed_rounds = setup.job.rounds;
  for (const RankReport& report : reports) {
    if (transport.empty()) transport = report.transport;
    moved.tokens += report.moved.tokens;
    moved.routes += report.moved.routes;
    moved.tokens_sent += report.moved.tokens_sent;
    moved.tokens_received += report.moved.tokens_received;
    moved.rows_received += report.moved.rows_received;
    moved.rows_dropped += report.moved.rows_dropped;
    rows_checked += report.rows_checked;
    sums_checked += report.sums_checked;
    dispatch_bytes += report.dispatch_sent_bytes;
    combine_bytes += report.combine_sent_bytes;
    num_mismatches += report.num_mismatches;
    mismatches.insert(mismatches.end(), report.mismatches.begin(), report.mismatches.end());
    for (size_t i = 0; i < report.expert_rows.size(); ++i)
      expert_rows[static_cast<size_t>(report.first_expert) + i] += report.expert_rows[i];
    timed_rounds = std::min(timed_rounds, static_cast<int64_t>(report.times.size()));
  }
  if (reports.empty()) timed_rounds = 0;
  std::stable_sort(mismatches.begin(), mismatches.end(),
                   [](const Mismatch& a, const Mismatch& b) { return a.round < b.round; });
  if (mismatches.size() > Findings::kKept) mismatches.resize(Findings::kKept);

  if (const auto sizes = all_to_all_sizes(config, 0, setup.ranks); sizes.ok()) {
    const int64_t scale_bytes = config.scales == kScalesF32 ? 4 : 1;
    dispatch_bytes_by_route = moved.routes * (sizes.value().row_bytes + sizes.value().num_scales * scale_bytes);
    combine_bytes_by_route = moved.routes * config.replicas * config.hidden * moeway_dtype_bytes(config.row_dtype);
  }
  for (size_t phase = 0; phase < phases.size() && timed_rounds > 0; ++phase) {
    std::vector<double> slowest(static_cast<size_t>(timed_rounds));
    for (const RankReport& report : reports)
      for (size_t i = 0; i < slowest.size(); ++i)
        slowest[i] = std::max(slowest[i], static_cast<double>(report.times[i][phase]));
    phases[phase] = {quantile(slowest, 0.5), quantile(slowest, 0.9)};
  }
}

std::string mismatch_text(const Mismatch& mismatch) {
  std::string text = fmt::format("rank {}, {}round {}: {}", mismatch.rank,
                                 mismatch.object == 0 ? "" : fmt::format("object {}, ", mismatch.object),
                                 mismatch.round, mismatch.what);
  if (mismatch.what == "sum") {
    text += fmt::format(" of token {}", mismatch.row);
  } else {
    if (mismatch.row >= 0 && mismatch.what != "row") text += " of row";
    if (mismatch.row >= 0) text += fmt::format(" {}", mismatch.row);
    if (mismatch.expert >= 0) text += fmt::format(" of expert {}", mismatch.expert);
  }
  if (mismatch.from_rank >= 0) {
    text += fmt::format(" (from rank {}, token {}", mismatch.from_rank, mismatch.from_token);
    text += mismatch.from_k >= 0 ? fmt::format(", k {})", mismatch.from_k) : ")";
  }
  if (mismatch.element >= 0) text += fmt::format(", element {}", mismatch.element);
  return text + fmt::format(": expected {}, got {}", mismatch.expected, mismatch.got);
}

}  // namespace moeway::cli
