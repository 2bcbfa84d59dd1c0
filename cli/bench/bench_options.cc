#include "cli/bench/bench_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "cli/option_text.h"

namespace moeway::cli {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxRanks = 1024, kMaxTokens = 8192, kMaxHidden = 1 << 20, kMaxRepeats = 100000;
// A graph of many pairs hides what it costs to launch it; on a processor there is nothing to hide.
constexpr int kDevicePairs = 40, kHostPairs = 8, kDeviceReplays = 30, kHostReplays = 10;

void add_shape(CLI::App& app, BenchOptions& options) {
  app.add_option("--ranks", options.ranks, "Number of ranks")->check(whole_number(1, kMaxRanks))->capture_default_str();
  add_numbers(app, "--tokens", options.tokens, 1, kMaxTokens,
              "Tokens of a rank in a call: one measurement for each\n"
              "[1,8,32,128]")
      ->type_name("LIST");
  app.add_option("--experts", options.experts, "Number of experts")
      ->check(whole_number(1, kInt32Max))
      ->capture_default_str();
  app.add_option("--topk", options.topk, "Experts a token goes to")
      ->check(whole_number(1, kInt32Max))
      ->capture_default_str();
  app.add_option("--hidden", options.hidden, "Elements of a token")
      ->check(whole_number(1, kMaxHidden))
      ->capture_default_str();
  add_choices(app, "--dtype", options.dtypes, dispatch_type_names(), "What dispatch moves: a series for each [fp8]");
  add_choices(app, "--layout", options.layouts, layout_names(),
              "How dispatch lays out what arrives: a series for each\n[padded]");
  add_form_options(app, options.form);
}

void add_measurement(CLI::App& app, BenchOptions& options) {
  app.add_flag("--split", options.split, "The four phases as separate calls, not the one-call forms");
  app.add_option("--sms", options.num_sms, "CUDA: multiprocessors that a call may take, 0 for all")
      ->check(whole_number(0, 1024))
      ->capture_default_str();
  app.add_flag("--row-source", options.row_source, "Dispatch also writes where each row came from");
  app.add_option("--sets", options.sets, "Sets of inputs that take turns")
      ->check(whole_number(1, 64))
      ->capture_default_str();
  app.add_option("--pairs", options.pairs,
                 "Dispatches with their combines in one measurement,\na multiple of --sets [40, on a CPU 8]")
      ->check(whole_number(1, kMaxRepeats));
  app.add_option("--replays", options.replays,
                 "Measurements, of which median, p10 and p90 are given\n[30, on a CPU 10]")
      ->check(whole_number(1, kMaxRepeats));
  app.add_option("--warm-up", options.warm_up, "Measurements before those, which do not count")
      ->check(whole_number(0, kMaxRepeats))
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Of data and routing")
      ->check(whole_number(0, std::numeric_limits<int64_t>::max()))
      ->capture_default_str();
}

}  // namespace

void add_bench_options(CLI::App& app, BenchOptions& options) {
  add_shape(app, options);
  add_measurement(app, options);
  add_device_options(app, options.device);
  app.add_flag("--processes", options.processes, "Ranks are processes, not threads of one");
  app.add_flag("--no-baselines", options.no_baselines, "CUDA: measure moeway alone, without copy and NCCL");
  app.add_option("--nccl", options.nccl, "CUDA: the NCCL to compare with")->type_name("FILE")->capture_default_str();
  app.add_option("--commit", options.commit, "What was measured, for the JSON")->type_name("ID");
  app.add_option("--timeout-ms", options.timeout_ms, "Limit of every wait for another rank")
      ->check(whole_number(1, 86'400'000))
      ->capture_default_str();
  app.add_flag("--quiet", options.quiet, "No table and no progress, only what went wrong");
  add_json_option(app, options.json_output);
  app.footer(
      "Examples:\n"
      "  moeway bench                                       2 ranks, fp8, 1 to 128 tokens\n"
      "  moeway bench --tokens 1,128,4096 --dtype fp8,bf16 --layout padded,packed,token-major\n"
      "  moeway bench --tokens 128 --split --json result.json\n"
      "  moeway bench --device cpu --ranks 4 --hidden 2048 --experts 64\n"
      "Exit code: 0 all values were right, 1 something was not, 2 wrong options.\n"
      "How to read it: docs/tuning.md.");
}

std::string contradiction(const BenchOptions& options) {
  const auto has = [](const auto& list, auto wanted) {
    return std::find(list.begin(), list.end(), wanted) != list.end();
  };
  if (options.topk > options.experts)
    return fmt::format("--topk: {}, expected at most the number of experts, {}", options.topk, options.experts);
  if (options.pairs && *options.pairs % options.sets != 0)
    return fmt::format("--pairs: {}, expected a multiple of --sets, {}", *options.pairs, options.sets);
  if (options.row_source && has(options.layouts, kTokenMajor))
    return "--row-source: not with --layout token-major, where a row's place says where it came from";
  if (has(options.layouts, kTokenMajor) && options.form.weights == kWeightsAtCombine)
    return "--weights combine: not with --layout token-major, where the experts' side has to add up";
  // What is for one layout or type must have that one among them.
  ShapeOptions form = options.form;
  form.layout = has(options.layouts, kExpertPacked) ? kExpertPacked : kExpertPadded;
  form.dtype = has(options.dtypes, DispatchType::kBytes) ? DispatchType::kBytes : DispatchType::kBf16;
  return contradiction(form);
}

std::vector<Series> series_of(const BenchOptions& options, const DeviceChoice& choice) {
  std::vector<Series> all;
  for (const DispatchType dtype : options.dtypes) {
    for (const Layout layout : options.layouts) {
      ShapeOptions form = options.form;
      form.dtype = dtype;
      form.layout = layout;
      form.hidden = options.hidden;
      if (layout != kExpertPacked) form.alignment.reset();
      Series series;
      series.config = config_of(form);
      series.config.num_experts = options.experts;
      series.config.topk = options.topk;
      series.config.max_tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
      series.config.distinct_experts = 1;
      series.config.timeout_ms = options.timeout_ms;
      series.config.num_sms = options.num_sms;
      series.split = options.split;
      series.row_source = options.row_source;
      series.tokens = options.tokens;
      series.num_ranks = options.ranks;
      series.devices = choice.devices;
      series.sets = options.sets;
      const int pairs = options.pairs.value_or(choice.on_host() ? kHostPairs : kDevicePairs);
      series.pairs = (pairs + options.sets - 1) / options.sets * options.sets;
      series.warm_up = options.warm_up;
      series.replays = options.replays.value_or(choice.on_host() ? kHostReplays : kDeviceReplays);
      series.seed = options.seed;
      series.timeout = std::chrono::milliseconds(options.timeout_ms);
      all.push_back(series);
    }
  }
  return all;
}

std::vector<Series> baseline_series_of(const std::vector<Series>& series) {
  std::vector<Series> chosen;
  const auto same_data = [](const AllToAllConfig& a, const AllToAllConfig& b) {
    return a.dispatch_dtype == b.dispatch_dtype && a.scales == b.scales && a.row_dtype == b.row_dtype;
  };
  for (const Series& one : series)
    if (std::none_of(chosen.begin(), chosen.end(),
                     [&](const Series& other) { return same_data(one.config, other.config); }))
      chosen.push_back(one);
  return chosen;
}

}  // namespace moeway::cli
