#include "cli/bench/bench_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <moeway/moeway.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/devices.h"
#include "cli/machine.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

using nlohmann::json;

bool same_data(const AllToAllConfig& a, const AllToAllConfig& b) {
  return a.dispatch_dtype == b.dispatch_dtype && a.scales == b.scales && a.row_dtype == b.row_dtype;
}

json times_json(const Times& times) {
  if (!times.measured) return nullptr;
  return {{"median", times.median}, {"p10", times.p10}, {"p90", times.p90}};
}

json failures_json(const std::vector<RankFailure>& failures) {
  json list = json::array();
  constexpr const char* kKinds[] = {"died", "hung", "failed"};
  for (const RankFailure& failure : failures)
    list.push_back(
        {{"rank", failure.rank}, {"kind", kKinds[static_cast<size_t>(failure.kind)]}, {"message", failure.message}});
  return list;
}

json point_json(const PointResult& point) {
  return {{"tokens", point.tokens},
          {"pair_us", times_json(point.pair)},
          {"dispatch_us", times_json(point.dispatch)},
          {"combine_us", point.dispatch.measured ? json({{"median", point.combine_us}}) : json()},
          {"dispatch_bytes", point.dispatch_bytes},
          {"combine_bytes", point.combine_bytes},
          {"heap_bytes", point.heap_bytes},
          {"workspace_bytes", point.workspace_bytes},
          {"verified", {{"rows", point.rows_checked}, {"sums", point.sums_checked}}},
          {"wrong", point.wrong},
          {"findings", point.findings}};
}

json series_json(const SeriesResult& result) {
  json points = json::array();
  for (const PointResult& point : result.points) points.push_back(point_json(point));
  json shape = shape_json(result.series.config);
  shape.erase("max_tokens");  // Of a point: its `tokens`.
  return {{"shape", shape},
          {"calls", result.series.split ? "split" : "fused"},
          {"transport", result.transport},
          {"points", points},
          {"failures", failures_json(result.failures)}};
}

json baselines_json(const SeriesResult& result) {
  json list = json::array();
  for (const BaselineResult& baseline : result.baselines)
    list.push_back({{"name", baseline.name},
                    {"tokens", baseline.tokens},
                    {"pair_us", times_json(baseline.pair)},
                    {"dispatch_bytes", baseline.dispatch_bytes},
                    {"combine_bytes", baseline.combine_bytes},
                    {"wrong", baseline.wrong},
                    {"skipped", baseline.skipped.empty() ? json() : json(baseline.skipped)}});
  return {{"dispatch_dtype", moeway_dtype_name(result.series.config.dispatch_dtype)},
          {"scales", scales_name(result.series.config.scales)},
          {"row_dtype", moeway_dtype_name(result.series.config.row_dtype)},
          {"nccl", result.nccl.empty() ? json() : json(result.nccl)},
          {"points", list},
          {"failures", failures_json(result.failures)}};
}

// Null on the host.
const DeviceReport* device_of(const BenchResult& result) {
  for (const SeriesResult& series : result.series)
    if (!series.device.name.empty()) return &series.device;
  return nullptr;
}

json device_json(const BenchResult& result) {
  const DeviceReport* device = device_of(result);
  if (device == nullptr) return nullptr;
  return {{"name", device->name},
          {"multiprocessors", device->multiprocessors},
          {"driver", nvidia_driver_version()},
          {"driver_cuda", device->driver_cuda},
          {"runtime_cuda", device->runtime_cuda}};
}

const BaselineResult* find_baseline(const SeriesResult& result, const std::vector<SeriesResult>& baselines,
                                    const std::string& name, int64_t tokens) {
  for (const SeriesResult& one : baselines)
    for (const BaselineResult& baseline : one.baselines)
      if (same_data(one.series.config, result.series.config) && baseline.name == name && baseline.tokens == tokens)
        return &baseline;
  return nullptr;
}

std::string us_text(const Times& times) { return times.measured ? fmt::format("{:.2f}", times.median) : "-"; }

constexpr const char* kBaselines[] = {"copy", "nccl_per_rank", "nccl_per_expert"};

}  // namespace

std::string bench_head(const BenchOptions& options, const DeviceChoice& choice, const BenchResult& result) {
  std::string text = fmt::format("moeway {}\n", moeway_version());
  text += fmt::format(
      "  ranks      {} as {}, {}\n", options.ranks, options.processes ? "processes" : "threads",
      choice.on_host() ? "on the host" : fmt::format("on CUDA devices {}", fmt::join(choice.devices, ", ")));
  if (!choice.note.empty()) text += fmt::format("             {}\n", choice.note);
  if (const DeviceReport* device = device_of(result); device != nullptr)
    text += fmt::format("  device     {}, {} SMs, driver {}, CUDA {}\n", device->name, device->multiprocessors,
                        nvidia_driver_version(), device->runtime_cuda);
  text += fmt::format("  shape      {} experts, top-{}, hidden {}\n", options.experts, options.topk, options.hidden);
  text += fmt::format("  inputs     {}, seed {}; routing uniform, another one on each rank and in each set\n",
                      counted(options.sets, "set"), options.seed);
  text += "  times      us, of the slowest rank; pair: a dispatch and its combine, one pair right after the other\n";
  return text;
}

std::string series_table(const SeriesResult& result, const std::vector<SeriesResult>& baselines) {
  const AllToAllConfig& config = result.series.config;
  std::string text = fmt::format("\n{}, {} rows and {} sums; {}; weights at {}; {}; {}\n", dispatch_text(config),
                                 moeway_dtype_name(config.row_dtype), moeway_dtype_name(config.output_dtype),
                                 layout_name(config.layout), weights_name(config.weights),
                                 result.series.split ? "four phases" : "one-call forms",
                                 result.transport.empty() ? "no transport" : result.transport);
  text += fmt::format("{:>8}{:>12}{:>12}{:>12}{:>12}{:>12}", "tokens", "pair", "p10", "p90", "dispatch", "combine");
  if (!baselines.empty()) text += fmt::format("{:>12}{:>12}{:>14}", "copy", "NCCL/rank", "NCCL/expert");
  text += "\n";
  for (const PointResult& point : result.points) {
    text += fmt::format("{:>8}{:>12}{:>12.2f}{:>12.2f}{:>12}{:>12.2f}", point.tokens, us_text(point.pair),
                        point.pair.p10, point.pair.p90, us_text(point.dispatch), point.combine_us);
    for (size_t i = 0; i < std::size(kBaselines) && !baselines.empty(); ++i) {
      const BaselineResult* found = find_baseline(result, baselines, kBaselines[i], point.tokens);
      text += fmt::format("{:>{}}", found == nullptr ? "-" : us_text(found->pair), i == 2 ? 14 : 12);
    }
    text += point.wrong == 0 ? "\n" : "  WRONG VALUES\n";
  }
  return text;
}

std::string bench_verdict(const BenchResult& result) {
  int64_t rows = 0, sums = 0, wrong = 0;
  std::vector<std::string> lines;
  const auto add = [&lines](std::string line) {
    if (lines.size() < 8) lines.push_back(std::move(line));
  };
  for (const auto* list : {&result.series, &result.baselines}) {
    for (const SeriesResult& series : *list) {
      for (const RankFailure& failure : series.failures) add(fmt::format("rank {}: {}", failure.rank, failure.message));
      for (const PointResult& point : series.points) {
        rows += point.rows_checked;
        sums += point.sums_checked;
        wrong += point.wrong;
        for (const std::string& finding : point.findings) add(fmt::format("{} tokens, {}", point.tokens, finding));
      }
      for (const BaselineResult& baseline : series.baselines) {
        wrong += baseline.wrong;
        if (baseline.wrong > 0) add(fmt::format("{}, {} tokens: wrong bytes", baseline.name, baseline.tokens));
      }
    }
  }
  if (result.ok())
    return fmt::format("All {} and {} looked at were right, bit by bit, in {}.", counted(rows, "row"),
                       counted(sums, "sum"), duration_text(result.seconds * 1e6));
  lines.push_back(
      fmt::format("FAILED: {} wrong in {} and {}", with_commas(wrong), counted(rows, "row"), counted(sums, "sum")));
  return fmt::format("{}", fmt::join(lines, "\n"));
}

json bench_json(const BenchOptions& options, const DeviceChoice& choice, const BenchResult& result,
                const std::vector<std::string>& command) {
  json series = json::array(), baselines = json::array();
  for (const SeriesResult& one : result.series) series.push_back(series_json(one));
  for (const SeriesResult& one : result.baselines) baselines.push_back(baselines_json(one));
  const Series& any = result.series.front().series;
  const Machine machine = look_at_machine();
  return {{"schema", "moeway.bench/1"},
          {"version", moeway_version()},
          {"command", command},
          {"commit", options.commit.empty() ? json() : json(options.commit)},
          {"ok", result.ok()},
          {"seconds", result.seconds},
          {"machine", {{"processor", machine.processor}, {"cores", machine.cores_usable}, {"kernel", machine.kernel}}},
          {"device", device_json(result)},
          {"job",
           {{"ranks", options.ranks},
            {"ranks_as", options.processes ? "processes" : "threads"},
            {"device", choice.on_host() ? "cpu" : "cuda"},
            {"devices", choice.devices},
            {"sets", any.sets},
            {"pairs", any.pairs},
            {"warm_up", any.warm_up},
            {"replays", any.replays},
            {"num_sms", any.config.num_sms},
            {"row_source", any.row_source},
            {"seed", options.seed},
            {"timeout_ms", options.timeout_ms}}},
          {"series", series},
          {"baselines", baselines}};
}

}  // namespace moeway::cli
