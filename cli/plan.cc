#include "cli/plan.h"

#include <fmt/format.h>
#include <moeway/moeway.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/json_output.h"
#include "cli/shape_options.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

struct PlanOptions {
  ShapeOptions shape;
  bool distinct = false;
  JsonOutput json_output;
};

AllToAllConfig planned_config(const PlanOptions& options) {
  AllToAllConfig config = config_of(options.shape);
  config.num_experts = options.shape.experts.value_or(kDefaultExperts);
  config.topk = options.shape.topk.value_or(kDefaultTopk);
  config.max_tokens = options.shape.tokens.value_or(kDefaultTokens);
  config.distinct_experts = options.distinct ? 1 : 0;
  return config;
}

// Ranks that own equally many experts need the same; each line of the table stands for all of those.
std::string plan_table(const AllToAllConfig& config, const std::vector<AllToAllSizes>& ranks) {
  std::string text = fmt::format(
      "{}{}, {} experts, top-{}, hidden {}, at most {} a rank and call\n"
      "dispatch {}, rows {}, sums {}; layout {}; weights at {}\n\n",
      counted(std::ssize(ranks), "rank"),
      config.replicas > 1 ? fmt::format(" in groups of {} with the same tokens", config.replicas) : "",
      config.num_experts, config.topk, config.hidden, counted(config.max_tokens, "token"), dispatch_text(config),
      moeway_dtype_name(config.row_dtype), moeway_dtype_name(config.output_dtype), layout_name(config.layout),
      weights_name(config.weights));
  text += fmt::format("{:<10}{:<24}{:>12}{:>14}{:>12}{:>12}{:>12}\n", "ranks", "experts", "most of one", "rows of x",
                      "x", "heap", "workspace");
  int64_t total = 0;
  for (size_t first = 0; first < ranks.size();) {
    const AllToAllSizes& sizes = ranks[first];
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1].num_local_experts == sizes.num_local_experts) ++last;
    total += static_cast<int64_t>(last - first + 1) * (sizes.heap_bytes + sizes.workspace_bytes);
    const int64_t last_expert = ranks[last].first_local_expert + ranks[last].num_local_experts - 1;
    const std::string experts = sizes.num_local_experts == 0 ? "none"
                                                             : fmt::format("{}-{}, {} each", sizes.first_local_expert,
                                                                           last_expert, sizes.num_local_experts);
    text += fmt::format("{:<10}{:<24}{:>12}{:>14}{:>12}{:>12}{:>12}\n",
                        first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last), experts,
                        with_commas(sizes.expert_capacity), with_commas(sizes.max_rows),
                        bytes_text(static_cast<double>(sizes.max_rows) * static_cast<double>(sizes.row_bytes)),
                        bytes_text(static_cast<double>(sizes.heap_bytes)),
                        bytes_text(static_cast<double>(sizes.workspace_bytes)));
    first = last + 1;
  }
  return text +
         fmt::format(
             "\nmost of one: rows that one expert can get at most; x: the tensor that dispatch writes, the caller's."
             ""
             "\nHeap and workspace are the library's: {} over all ranks.\n",
             bytes_text(static_cast<double>(total)));
}

nlohmann::json plan_json(const AllToAllConfig& config, const std::vector<AllToAllSizes>& ranks,
                         const std::vector<std::string>& command_line) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    list.push_back({{"rank", rank},
                    {"first_expert", ranks[rank].first_local_expert},
                    {"num_experts", ranks[rank].num_local_experts},
                    {"expert_capacity", ranks[rank].expert_capacity},
                    {"max_rows", ranks[rank].max_rows},
                    {"row_bytes", ranks[rank].row_bytes},
                    {"num_scales", ranks[rank].num_scales},
                    {"heap_bytes", ranks[rank].heap_bytes},
                    {"workspace_bytes", ranks[rank].workspace_bytes}});
  return {{"schema", "moeway.plan/1"},   {"version", moeway_version()},
          {"command", command_line},     {"ok", true},
          {"shape", shape_json(config)}, {"ranks", list}};
}

int run_plan(const PlanOptions& options, const std::vector<std::string>& command_line) {
  if (const std::string wrong = contradiction(options.shape); !wrong.empty()) {
    fmt::print(stderr, "moeway plan: {}\n", wrong);
    return 2;
  }
  if (const Status writable = options.json_output.check(); !writable.ok()) {
    fmt::print(stderr, "moeway plan: {}\n", writable.message());
    return 2;
  }
  const int num_ranks = options.shape.ranks.value_or(kDefaultRanks);
  if (const std::string wrong = wrong_replicas(options.shape, num_ranks); !wrong.empty()) {
    fmt::print(stderr, "moeway plan: {}\n", wrong);
    return 2;
  }
  const AllToAllConfig config = planned_config(options);
  std::vector<AllToAllSizes> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Result<AllToAllSizes> sizes = all_to_all_sizes(config, rank, num_ranks);
    if (!sizes.ok()) {
      fmt::print(stderr, "moeway plan: {}\n", sizes.status().message());
      return 2;
    }
    ranks.push_back(sizes.value());
  }
  if (options.json_output.text_wanted()) fmt::print("{}", plan_table(config, ranks));
  const Status written = options.json_output.write(plan_json(config, ranks, command_line));
  if (!written.ok()) fmt::print(stderr, "moeway plan: {}\n", written.message());
  return written.ok() ? 0 : 1;
}

}  // namespace

std::function<int()> add_plan(CLI::App& app, const std::vector<std::string>& command_line) {
  CLI::App* command = app.add_subcommand("plan", "What a shape needs: experts of each rank, rows, heap, workspace");
  auto options = std::make_shared<PlanOptions>();
  add_shape_options(*command, options->shape);
  command->add_flag("--distinct", options->distinct, "No token names an expert twice: smaller outputs");
  add_json_option(*command, options->json_output);
  command->footer(
      "Example:\n"
      "  moeway plan --ranks 16 --experts 256 --topk 8 --hidden 7168 --tokens 128 --dtype fp8 --distinct");
  return [options, &command_line] { return run_plan(*options, command_line); };
}

}  // namespace moeway::cli
