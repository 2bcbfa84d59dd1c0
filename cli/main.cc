// The command `moeway`. What each of its commands does: docs/command-line.md.

#include <fmt/format.h>
#include <moeway/moeway.h>

#include <CLI/CLI.hpp>
#include <clocale>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "cli/bench/bench_command.h"
#include "cli/doctor.h"
#include "cli/option_text.h"
#include "cli/plan.h"
#include "cli/run_command.h"

namespace {

constexpr int kWrong = 1, kUsage = 2;

int run_command_line(const std::vector<std::string>& words) {
  CLI::App app("moeway moves tokens to experts and back, for Mixture-of-Experts models", "moeway");
  app.set_version_flag("--version", std::string("moeway ") + moeway_version());
  app.require_subcommand(1);
  const std::function<int()> run = moeway::cli::add_run(app, words);
  const std::function<int()> bench = moeway::cli::add_bench(app, words);
  const std::function<int()> doctor = moeway::cli::add_doctor(app, words);
  const std::function<int()> plan = moeway::cli::add_plan(app, words);
  app.footer(
      "Examples:\n"
      "  moeway run                                run 8 ranks on this machine and check every value\n"
      "  moeway run --routes trace.jsonl           the same with recorded routing decisions\n"
      "  moeway bench                              how long dispatch and combine take\n"
      "  moeway doctor                             which transports work here\n"
      "  moeway plan --ranks 16 --experts 256      how much memory a shape needs\n"
      "`moeway COMMAND --help` has the options of a command.");
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend() - 1));  // CLI11 takes them last first.
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help and --version.
    fmt::print(stderr, "moeway: {}\n", moeway::cli::explain(app, error, {words.begin() + 1, words.end()}));
    return kUsage;
  }
  if (app.got_subcommand("run")) return run();
  if (app.got_subcommand("bench")) return bench();
  if (app.got_subcommand("doctor")) return doctor();
  return plan();
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_CTYPE, "");
  try {
    return run_command_line({argv, argv + argc});
  } catch (const std::exception& exception) {
    fmt::print(stderr, "moeway: {}\n", exception.what());
    return kWrong;
  }
}
