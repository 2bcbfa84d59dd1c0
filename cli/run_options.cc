#include "cli/run_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/option_text.h"
#include "cli/route_file.h"
#include "cli/router.h"

namespace moeway::cli {
namespace {

constexpr int32_t kMostSoakExperts = 4096;  // Drawing routes takes time with each of them.
constexpr double kDefaultSkew = 0.8;
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
const Names<Execution> kExecutions = {{"fibers", kFibers}, {"threads", kThreads}, {"lanes", kLanes}};
const Names<std::optional<bool>> kRanksAs = {{"processes", false}, {"threads", true}};

void add_route_options(CLI::App& app, RunOptions& options) {
  app.add_option("--routes", options.routes_file, "Recorded routing decisions, JSON lines [a built-in router]")
      ->type_name("FILE");
  app.add_option("--layer", options.layer, "With --routes: only records of this layer [all]")
      ->check(whole_number(0, kInt64Max));
  app.add_option("--skew", options.skew,
                 "Built-in router: the i-th most popular expert is chosen in\nproportion to 1/i^SKEW [0.8]")
      ->check(real_number(0, 10));
  app.add_flag("--ragged", options.ragged, "Built-in router: batches of 0 to --tokens tokens");
  app.add_option("--seed", options.seed, "Of the data, and of the built-in router")
      ->check(whole_number(0, kInt64Max))
      ->capture_default_str();
}

// What a soak draws for itself.
constexpr const char* kDrawn[] = {"--routes",  "--layer",       "--skew",        "--ragged", "--rounds",
                                  "--dtype",   "--token-bytes", "--scale-bytes", "--layout", "--alignment",
                                  "--weights", "--rows-dtype",  "--out-dtype",   "--warps",  "--execution"};

void add_soak_options(CLI::App& app, RunOptions& options) {
  app.add_option_function<std::string>(
         "--soak", [&options](const std::string& given) { options.soak_ms = milliseconds_of(given); },
         "For so long: jobs of random shapes, routes and delays, every\nvalue checked; --ranks, --experts, --topk, "
         "--tokens and\n--hidden are the most that is drawn")
      ->type_name("DURATION")
      ->check(duration());
  app.add_option("--soak-iteration", options.soak_iteration, "This job of a soak alone, as its report names it")
      ->check(whole_number(0, kInt64Max));
  app.parse_complete_callback([&app, &options] {
    for (const char* name : kDrawn)
      if (options.not_with_soak.empty() && app.count(name) > 0) options.not_with_soak = name;
  });
}

void add_job_options(CLI::App& app, RunOptions& options) {
  app.add_option("--rounds", options.rounds, "Dispatches, each with its combine")
      ->check(whole_number(1, 1'000'000'000))
      ->capture_default_str();
  add_device_options(app, options.device);
  add_choice(app, "--execution", options.execution, kExecutions, "CPU ranks: what a warp is [fibers]");
  app.add_option("--warps", options.warps, "CPU ranks: warps that share a rank's work")
      ->check(whole_number(1, 256))
      ->capture_default_str();
  add_choice(app, "--ranks-as", options.as_threads, kRanksAs,
             "What a rank is [processes; threads where ranks share\na CUDA device]");
  app.add_flag("--join", options.join, "This process is one of the ranks that torchrun, mpirun or\nsrun has started");
  app.add_option("--timeout-ms", options.timeout_ms, "Limit of every wait for another rank")
      ->check(whole_number(1, 86'400'000))
      ->capture_default_str();
  app.add_flag("--quiet", options.quiet, "No table and no progress, only what went wrong");
}

}  // namespace

void add_run_options(CLI::App& app, RunOptions& options) {
  add_shape_options(app, options.shape);
  add_route_options(app, options);
  add_job_options(app, options);
  add_soak_options(app, options);
  add_json_option(app, options.json_output);
  app.footer(
      "Examples:\n"
      "  moeway run                                          8 ranks, built-in router\n"
      "  moeway run --routes trace.jsonl --rounds 100        recorded routing decisions\n"
      "  moeway run --dtype fp8 --layout packed --alignment 128\n"
      "  moeway run --device cuda --ranks 2 --hidden 7168    on GPUs\n"
      "  moeway run --ranks 3 --experts 60 --topk 4 --ragged --weights combine --json result.json\n"
      "  mpirun -n 4 moeway run --join\n"
      "  moeway run --soak 10m --seed 7                      random shapes for ten minutes\n"
      "Exit code: 0 all was right, 1 something was not, 2 wrong options.");
}

std::string contradiction(const RunOptions& options) {
  const ShapeOptions& shape = options.shape;
  if (options.join && shape.ranks) return "--ranks: not with --join, where the launcher says how many there are";
  if (soak_wanted(options)) {
    if (options.soak_ms && options.soak_iteration) return "--soak-iteration: not with --soak, it is one job alone";
    const char* option = options.soak_ms ? "--soak" : "--soak-iteration";
    if (options.join) return fmt::format("--join: not with {}, which starts many jobs", option);
    if (const int32_t experts = options.shape.experts.value_or(1); experts > kMostSoakExperts)
      return fmt::format("--experts: {}, expected at most {} with {}", experts, kMostSoakExperts, option);
    if (!options.not_with_soak.empty())
      return fmt::format("{}: not with {}, which draws it", options.not_with_soak, option);
    return "";
  }
  if (options.join && options.as_threads) return "--ranks-as: not with --join, where every rank is a process";
  if (!options.routes_file.empty()) {
    if (shape.topk) return "--topk: not with --routes, where the file says how many routes a token has";
    if (options.skew) return "--skew: not with --routes, it is for the built-in router";
    if (options.ragged) return "--ragged: not with --routes, it is for the built-in router";
  } else if (options.layer) {
    return "--layer: only with --routes";
  }
  return contradiction(shape);
}

bool soak_wanted(const RunOptions& options) { return options.soak_ms || options.soak_iteration; }

SoakLimits soak_limits(const RunOptions& options) {
  SoakLimits limits;
  const ShapeOptions& shape = options.shape;
  limits.ranks = shape.ranks.value_or(limits.ranks);
  limits.experts = shape.experts.value_or(limits.experts);
  limits.topk = shape.topk.value_or(limits.topk);
  limits.tokens = shape.tokens.value_or(limits.tokens);
  limits.hidden = shape.hidden.value_or(limits.hidden);
  limits.as_threads = options.as_threads;
  limits.timeout = std::chrono::milliseconds(options.timeout_ms);
  return limits;
}

namespace {

Result<Routes> routes_of_groups(const RunOptions& options, int num_ranks, bool drawn) {
  if (!options.routes_file.empty()) {
    RouteFileOptions file;
    file.path = options.routes_file;
    file.num_ranks = num_ranks;
    file.rounds = options.rounds;
    file.tokens = options.shape.tokens;
    file.experts = options.shape.experts;
    file.layer = options.layer;
    return read_route_file(file);
  }
  RouterOptions router;
  router.num_ranks = num_ranks;
  router.num_experts = options.shape.experts.value_or(kDefaultExperts);
  router.topk = options.shape.topk.value_or(std::min(kDefaultTopk, router.num_experts));
  router.tokens = options.shape.tokens.value_or(kDefaultTokens);
  router.rounds = options.rounds;
  router.skew = options.skew.value_or(kDefaultSkew);
  router.ragged = options.ragged;
  router.seed = options.seed;
  if (router.topk > router.num_experts)
    return Status(MOEWAY_INVALID_ARGUMENT, "--topk: " + std::to_string(router.topk) +
                                               ", expected at most the number of experts, " +
                                               std::to_string(router.num_experts));
  if (drawn) return skewed_routes(router);
  Routes undrawn;
  undrawn.num_experts = router.num_experts;
  undrawn.topk = router.topk;
  undrawn.max_tokens = router.tokens;
  return undrawn;
}

}  // namespace

Result<Routes> routes_of(const RunOptions& options, int num_ranks, bool drawn) {
  const int replicas = options.shape.replicas;
  Result<Routes> routes = routes_of_groups(options, num_ranks / replicas, drawn);
  if (!routes.ok() || replicas == 1) return routes;
  routes.value().replicas = replicas;
  if (drawn || !options.routes_file.empty())
    routes.value().notes.push_back(fmt::format("each group of {} ranks takes the part of one rank", replicas));
  return routes;
}

AllToAllConfig run_config(const RunOptions& options, const Routes& routes) {
  AllToAllConfig config = config_of(options.shape);
  config.num_experts = routes.num_experts;
  config.topk = routes.topk;
  config.max_tokens = routes.max_tokens;
  config.distinct_experts = routes.distinct_experts ? 1 : 0;
  config.execution = options.execution;
  config.num_warps = options.warps;
  config.timeout_ms = options.timeout_ms;
  return config;
}

}  // namespace moeway::cli
