// The options of `moeway bench`, and the series that follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/series.h"
#include "cli/cli11_fwd.h"
#include "cli/device_choice.h"
#include "cli/json_output.h"
#include "cli/shape_options.h"

namespace moeway::cli {

struct BenchOptions {
  int ranks = 2;
  int32_t experts = 256, topk = 8;
  int64_t hidden = 7168;
  std::vector<int64_t> tokens{1, 8, 32, 128};
  std::vector<DispatchType> dtypes{DispatchType::kFp8};
  std::vector<Layout> layouts{kExpertPadded};
  ShapeOptions form;  // Weights, types of rows and sums, alignment, sizes of opaque bytes.
  int32_t num_sms = 0;
  bool split = false, row_source = false;
  int sets = 8;
  std::optional<int> pairs, replays;
  int warm_up = 3;
  uint64_t seed = 0;
  DeviceOptions device;
  bool processes = false;
  bool no_baselines = false;
  std::string nccl = "libnccl.so.2";
  std::string commit;
  int64_t timeout_ms = 30000;
  bool quiet = false;
  JsonOutput json_output;
};

void add_bench_options(CLI::App& app, BenchOptions& options);

// Options that do not go together, and why; "" if all do.
std::string contradiction(const BenchOptions& options);

// One for each type and layout.
std::vector<Series> series_of(const BenchOptions& options, const DeviceChoice& choice);
// What the baselines need: a series for each type, whatever the layout.
std::vector<Series> baseline_series_of(const std::vector<Series>& series);

}  // namespace moeway::cli
