// The options of `moeway run`, and what follows from them.
#pragma once

#include <moeway/all_to_all.h>
#include <moeway/status.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/json_output.h"
#include "cli/routes.h"
#include "cli/shape_options.h"

namespace moeway::cli {

struct RunOptions {
  ShapeOptions shape;
  bool ranks_given = false, alignment_given = false;
  std::string routes_file;  // "": the built-in router.
  std::optional<int64_t> layer;
  std::optional<double> skew;
  bool ragged = false;
  uint64_t seed = 0;
  int64_t rounds = 10;
  Execution execution = kFibers;
  int32_t warps = 4;
  bool as_threads = false;
  bool ranks_as_given = false;
  bool join = false;
  int64_t timeout_ms = 30000;
  bool quiet = false;
  JsonOutput json_output;
};

void add_run_options(CLI::App& app, RunOptions& options);

// Options that do not go together, and why; "" if all do.
std::string contradiction(const RunOptions& options);

Result<Routes> routes_of(const RunOptions& options, int num_ranks);
AllToAllConfig run_config(const RunOptions& options, const Routes& routes);

}  // namespace moeway::cli
