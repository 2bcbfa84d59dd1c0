#include "cli/run_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/shape_options.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

constexpr int kMaxRankLines = 32;
constexpr size_t kMaxExpertColumns = 64;
constexpr int64_t kMaxFailures = 8;

std::string where_text(const RunSetup& setup) {
  const AllToAllConfig& config = setup.job.config;
  if (!setup.job.devices.empty()) return fmt::format("CUDA devices {}", fmt::join(setup.job.devices, ", "));
  return fmt::format("{}, {} a rank", execution_name(config.execution), counted(config.num_warps, "warp"));
}

std::string setup_text(const RunSetup& setup, const RunSummary& summary) {
  const AllToAllConfig& config = setup.job.config;
  const Routes& routes = *setup.job.routes;
  std::string text = fmt::format("moeway {}\n", moeway_version());
  text += fmt::format("  ranks      {} {}, transport: {}; {}\n", setup.ranks,
                      setup.joined       ? "as launched"
                      : setup.as_threads ? "as threads"
                                         : "as processes",
                      summary.transport.empty() ? "none" : summary.transport, where_text(setup));
  if (!setup.device_note.empty()) text += fmt::format("             on the host: {}\n", setup.device_note);
  if (config.replicas > 1) text += fmt::format("             in groups of {} with the same tokens\n", config.replicas);
  text += fmt::format("  shape      {} experts, top-{}, hidden {}, at most {} a rank and round\n", config.num_experts,
                      config.topk, config.hidden, counted(config.max_tokens, "token"));
  text += fmt::format("  data       dispatch {}, rows {}, sums {}; layout {}{}; weights at {}\n", dispatch_text(config),
                      moeway_dtype_name(config.row_dtype), moeway_dtype_name(config.output_dtype),
                      layout_name(config.layout),
                      config.layout == kExpertPacked ? fmt::format(", alignment {}", config.alignment) : "",
                      weights_name(config.weights));
  text += fmt::format("  routes     {}: {} in {}\n", routes.source, counted(routes.num_tokens, "token"),
                      routes.num_batches == 1 ? "1 batch" : with_commas(routes.num_batches) + " batches");
  for (const std::string& note : routes.notes) text += fmt::format("             {}\n", note);
  return text;
}

std::string moved_line(const char* name, int64_t bytes, int64_t bytes_by_route) {
  const double kept = bytes_by_route == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(bytes_by_route);
  return fmt::format("  {:<10} {:>22}{:>22}{:>15.1f} %\n", name, bytes_text(static_cast<double>(bytes)),
                     bytes_text(static_cast<double>(bytes_by_route)), 100 * (1 - kept));
}

std::string moved_text(const RunSetup& setup, const RunSummary& summary) {
  const Moved& moved = summary.moved;
  std::string text =
      fmt::format("\nMoved in {}: {}, {} to experts; a token went to {:.2f} ranks on average\n",
                  counted(setup.job.rounds, "round"), counted(moved.tokens, "token"), counted(moved.routes, "row"),
                  moved.tokens == 0 ? 0.0 : static_cast<double>(moved.tokens_sent) / static_cast<double>(moved.tokens));
  if (setup.job.config.max_recv_tokens > 0)
    text += fmt::format("  {} dropped, which max_recv_tokens = {} had no room for\n",
                        counted(moved.rows_dropped, "row"), with_commas(setup.job.config.max_recv_tokens));
  text += fmt::format("  {:<10} {:>22}{:>22}{:>17}\n", "", "sent", "sent row by row", "saved");
  text += moved_line("dispatch", summary.dispatch_bytes, summary.dispatch_bytes_by_route);
  text += moved_line("combine", summary.combine_bytes, summary.combine_bytes_by_route);
  return text;
}

std::string load_text(const RunSetup& setup, const RunSummary& summary, bool unicode) {
  const int64_t rows = summary.moved.rows_received;
  int64_t busiest_rank = 0;
  for (const RankReport& report : summary.reports) busiest_rank = std::max(busiest_rank, report.moved.rows_received);
  const auto busiest = std::max_element(summary.expert_rows.begin(), summary.expert_rows.end());
  std::string text = "\nLoad: rows of each rank, and of each of its experts (against the busiest expert)\n";
  const size_t rank_digits = std::to_string(setup.ranks - 1).size();
  const size_t expert_digits = std::to_string(setup.job.config.num_experts - 1).size();
  for (const RankReport& report : summary.reports) {
    if (report.rank == kMaxRankLines) {
      text += fmt::format("  and {} more; --json has them all\n", counted(setup.ranks - kMaxRankLines, "rank"));
      break;
    }
    const int64_t own = report.moved.rows_received;
    const int64_t last = report.first_expert + std::ssize(report.expert_rows) - 1;
    std::vector<double> experts;
    for (const int64_t expert_rows : report.expert_rows)
      experts.push_back(*busiest == 0 ? 0 : static_cast<double>(expert_rows) / static_cast<double>(*busiest));
    text += fmt::format(
        "  rank {:>{}} {} {:>11} {:>5.1f} %   {}{}\n", report.rank, rank_digits,
        bar(busiest_rank == 0 ? 0 : static_cast<double>(own) / static_cast<double>(busiest_rank), 24, unicode),
        with_commas(own), rows == 0 ? 0.0 : 100.0 * static_cast<double>(own) / static_cast<double>(rows),
        report.expert_rows.empty()
            ? "no experts"
            : fmt::format("experts {:>{}}-{:<{}} ", report.first_expert, expert_digits, last, expert_digits),
        columns(experts, kMaxExpertColumns, unicode));
  }
  if (rows == 0) return text;
  const double mean_rank = static_cast<double>(rows) / setup.ranks;
  const double mean_expert = static_cast<double>(rows) / setup.job.config.num_experts;
  return text + fmt::format("  the busiest rank has {:.2f} times the mean, the busiest expert ({}) {:.2f} times\n",
                            static_cast<double>(busiest_rank) / mean_rank, busiest - summary.expert_rows.begin(),
                            static_cast<double>(*busiest) / mean_expert);
}

std::string times_text(const RunSummary& summary) {
  if (summary.timed_rounds == 0) return "";
  std::string text = fmt::format(
      "\n{:<51}{:>12}{:>12}\n",
      fmt::format("Time of the slowest rank, over {}", counted(summary.timed_rounds, "timed round")), "median", "p90");
  for (size_t phase = 0; phase < summary.phases.size(); ++phase)
    text += fmt::format("  {:<49}{:>12}{:>12}\n", kTimedPhaseNames[phase],
                        duration_text(summary.phases[phase].median_us), duration_text(summary.phases[phase].p90_us));
  return text;
}

}  // namespace

std::string run_table(const RunSetup& setup, const RunSummary& summary, bool unicode) {
  std::string text = setup_text(setup, summary);
  // What the ranks of a broken job have counted is not whole.
  if (!summary.failures.empty()) return text;
  return text + moved_text(setup, summary) + load_text(setup, summary, unicode) + times_text(summary);
}

std::string run_verdict(const RunSetup& setup, const RunSummary& summary) {
  if (summary.ok())
    return fmt::format("All {} and {} verified, bit by bit, in {}.", counted(summary.rows_checked, "row"),
                       counted(summary.sums_checked, "sum"), duration_text(setup.seconds * 1e6));
  std::string text;
  const int64_t num_failures = std::ssize(summary.failures);
  const int64_t shown = std::min(num_failures, kMaxFailures);
  for (int64_t i = 0; i < shown; ++i) {
    const RankFailure& failure = summary.failures[static_cast<size_t>(i)];
    text += fmt::format("rank {}: {}\n", failure.rank, failure.message);
  }
  if (num_failures > shown) text += fmt::format("and {} more\n", counted(num_failures - shown, "rank"));
  for (const Mismatch& mismatch : summary.mismatches) text += mismatch_text(mismatch) + "\n";
  const int64_t more = summary.num_mismatches - std::ssize(summary.mismatches);
  if (more > 0) text += fmt::format("and {} more\n", with_commas(more));
  if (num_failures > 0)
    text += fmt::format("FAILED: {} of {} failed; ", num_failures, counted(setup.ranks, "rank"));
  else
    text += "FAILED: ";
  return text + fmt::format("{} wrong in {} and {}", with_commas(summary.num_mismatches),
                            counted(summary.rows_checked, "row"), counted(summary.sums_checked, "sum"));
}

nlohmann::json run_json(const RunSetup& setup, const RunSummary& summary, const std::vector<std::string>& command) {
  using nlohmann::json;
  const AllToAllConfig& config = setup.job.config;
  const Routes& routes = *setup.job.routes;
  const Moved& moved = summary.moved;
  json ranks = json::array();
  for (const RankReport& report : summary.reports)
    ranks.push_back({{"rank", report.rank},
                     {"rounds", report.rounds},
                     {"first_expert", report.first_expert},
                     {"num_experts", report.expert_rows.size()},
                     {"tokens", report.moved.tokens},
                     {"tokens_sent", report.moved.tokens_sent},
                     {"rows_received", report.moved.rows_received}});
  json phases;
  for (size_t phase = 0; phase < summary.phases.size(); ++phase)
    phases[kTimedPhaseNames[phase]] = {{"median", summary.phases[phase].median_us},
                                       {"p90", summary.phases[phase].p90_us}};
  json failures = json::array();
  constexpr const char* kKinds[] = {"died", "hung", "failed"};
  for (const RankFailure& failure : summary.failures)
    failures.push_back(
        {{"rank", failure.rank}, {"kind", kKinds[static_cast<size_t>(failure.kind)]}, {"message", failure.message}});
  return {{"schema", "moeway.run/1"},
          {"version", moeway_version()},
          {"command", command},
          {"ok", summary.ok()},
          {"seconds", setup.seconds},
          {"transport", summary.transport},
          {"job",
           {{"ranks", setup.ranks},
            {"ranks_as", setup.joined       ? "launched"
                         : setup.as_threads ? "threads"
                                            : "processes"},
            {"device", setup.job.devices.empty() ? "cpu" : "cuda"},
            {"devices", setup.job.devices},
            {"execution", execution_name(config.execution)},
            {"warps", config.num_warps},
            {"rounds", setup.job.rounds},
            {"seed", setup.job.seed},
            {"timeout_ms", setup.job.timeout.count()}}},
          {"shape", shape_json(config)},
          {"routes",
           {{"source", routes.source},
            {"batches", routes.num_batches},
            {"tokens", routes.num_tokens},
            {"notes", routes.notes}}},
          {"moved",
           {{"tokens", moved.tokens},
            {"routes", moved.routes},
            {"tokens_sent", moved.tokens_sent},
            {"rows_dropped", moved.rows_dropped},
            {"dispatch_bytes", summary.dispatch_bytes},
            {"dispatch_bytes_by_route", summary.dispatch_bytes_by_route},
            {"combine_bytes", summary.combine_bytes},
            {"combine_bytes_by_route", summary.combine_bytes_by_route}}},
          {"load", {{"experts", summary.expert_rows}, {"ranks", ranks}}},
          {"times_us", {{"rounds", summary.timed_rounds}, {"phases", phases}}},
          {"verified", {{"rows", summary.rows_checked}, {"sums", summary.sums_checked}}},
          {"mismatches", {{"count", summary.num_mismatches}, {"first", summary.mismatches}}},
          {"failures", failures}};
}

}  // namespace moeway::cli
