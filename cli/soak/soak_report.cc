#include <fmt/format.h>
#include <fmt/ranges.h>
#include <moeway/moeway.h>

#include <nlohmann/json.hpp>

#include "cli/run_report.h"
#include "cli/soak/soak.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

// The words that give the same iterations again, but for how many of them.
std::string options_text(const Soak& soak) {
  const SoakLimits& limits = soak.limits;
  std::string text =
      fmt::format("--seed {} --ranks {} --experts {} --topk {} --tokens {} --hidden {} --timeout-ms {}", soak.seed,
                  limits.ranks, limits.experts, limits.topk, limits.tokens, limits.hidden, limits.timeout.count());
  if (limits.as_threads) text += *limits.as_threads ? " --ranks-as threads" : " --ranks-as processes";
  text += limits.devices.empty() ? " --device cpu" : fmt::format(" --devices {}", fmt::join(limits.devices, ","));
  return text;
}

std::string repeat_text(const Soak& soak, int64_t number) {
  return fmt::format("moeway run --soak-iteration {} {}", number, options_text(soak));
}

std::string choices_text(const std::map<std::string, int64_t>& choices) {
  std::string text;
  for (const auto& [choice, count] : choices)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", choice, with_commas(count));
  return text;
}

}  // namespace

std::string soak_table(const Soak& soak, const SoakResult& result) {
  const SoakLimits& limits = soak.limits;
  std::string text = fmt::format("moeway {}\n", moeway_version());
  text += fmt::format("  soak       {} of {} in {}; seed {}, from iteration {} on\n", counted(result.rounds, "round"),
                      counted(result.iterations, "job"), duration_text(result.seconds * 1e6), soak.seed, soak.first);
  text += fmt::format("  up to      {}, {} experts, top-{}, hidden {}, {} a rank and round\n",
                      counted(limits.ranks, "rank"), limits.experts, limits.topk, limits.hidden,
                      counted(limits.tokens, "token"));
  for (const auto& [choice, counts] : result.drawn) text += fmt::format("  {:<15}{}\n", choice, choices_text(counts));
  return text;
}

std::string soak_verdict(const Soak& soak, const SoakResult& result) {
  if (result.failed == nullptr)
    return fmt::format("All {} and {} of {} in {} verified, bit by bit, in {}.", counted(result.rows_checked, "row"),
                       counted(result.sums_checked, "sum"), counted(result.rounds, "round"),
                       counted(result.iterations, "job"), duration_text(result.seconds * 1e6));
  return fmt::format("{}\nin seed {}, {}\n{} before it were right; to repeat it alone:\n  {}",
                     run_verdict(result.failed_setup, *result.failure), soak.seed, iteration_text(*result.failed),
                     counted(result.iterations, "job"), repeat_text(soak, result.failed->number));
}

nlohmann::json soak_json(const Soak& soak, const SoakResult& result, const std::vector<std::string>& command) {
  const SoakLimits& limits = soak.limits;
  nlohmann::json failed;
  if (result.failed != nullptr) {
    const nlohmann::json run = run_json(result.failed_setup, *result.failure, command);
    failed = {{"iteration", iteration_json(*result.failed)},
              {"repeat", repeat_text(soak, result.failed->number)},
              {"mismatches", run.at("mismatches")},
              {"failures", run.at("failures")}};
  }
  return {{"schema", "moeway.soak/1"},
          {"version", moeway_version()},
          {"command", command},
          {"ok", result.ok()},
          {"seconds", result.seconds},
          {"seed", soak.seed},
          {"first_iteration", soak.first},
          {"iterations", result.iterations},
          {"rounds", result.rounds},
          {"limits",
           {{"ranks", limits.ranks},
            {"experts", limits.experts},
            {"topk", limits.topk},
            {"tokens", limits.tokens},
            {"hidden", limits.hidden}}},
          {"drawn", result.drawn},
          {"verified", {{"rows", result.rows_checked}, {"sums", result.sums_checked}}},
          {"failed", failed}};
}

}  // namespace moeway::cli
