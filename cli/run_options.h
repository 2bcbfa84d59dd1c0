// The options of `moeway run`, and what follows from them.
#pragma once

#include <moeway/all_to_all.h>
#include <moeway/status.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cli/cli11_fwd.h"
#include "cli/device_choice.h"
#include "cli/json_output.h"
#include "cli/routes.h"
#include "cli/shape_options.h"
#include "cli/soak/iteration.h"

namespace moeway::cli {

struct RunOptions {
  ShapeOptions shape;
  std::string routes_file;  // "": the built-in router.
  std::optional<int64_t> layer;
  std::optional<double> skew;
  bool ragged = false;
  uint64_t seed = 0;
  int64_t rounds = 10;
  Execution execution = kFibers;
  int32_t warps = 4;
  std::optional<bool> as_threads;
  DeviceOptions device;
  bool join = false;
  int64_t timeout_ms = 30000;
  bool quiet = false;
  std::optional<int64_t> soak_ms;         // Jobs of random shapes for so long.
  std::optional<int64_t> soak_iteration;  // This one alone.
  std::string not_with_soak;              // The first option given that a soak draws; "" if none was.
  JsonOutput json_output;
};

void add_run_options(CLI::App& app, RunOptions& options);

std::string contradiction(const RunOptions& options);
bool soak_wanted(const RunOptions& options);
// The limits of a soak, but for devices.
SoakLimits soak_limits(const RunOptions& options);

// Of the file, or, as `drawn` is not set, only the numbers that the built-in router's routes will have: what they need
// can be looked at before the work of drawing them. `num_ranks` is a multiple of --replicas.
Result<Routes> routes_of(const RunOptions& options, int num_ranks, bool drawn);
AllToAllConfig run_config(const RunOptions& options, const Routes& routes);

}  // namespace moeway::cli
