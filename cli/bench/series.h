// What a benchmark measures, and what its ranks have to say: docs/tuning.md tells how to read it.
#pragma once

#include <moeway/all_to_all.h>

#include <chrono>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace moeway::cli {

// One form of data and of calls, measured by one job at several numbers of tokens.
struct Series {
  AllToAllConfig config;    // But for max_tokens.
  bool split = false;       // The four phases as separate calls; else the one-call forms.
  bool row_source = false;  // Dispatch also writes where each row came from.
  std::vector<int64_t> tokens;
  int num_ranks = 1;
  std::vector<int> devices;  // Rank r is on devices[r % size]; empty: on the host.
  int sets = 1;              // Sets of inputs that take turns.
  int pairs = 1;             // Of dispatch and combine in one recording.
  int warm_up = 1, replays = 1;
  uint64_t seed = 0;
  std::chrono::milliseconds timeout{30000};

  bool on_host() const { return devices.empty(); }
  int device_of(int rank) const { return devices[static_cast<size_t>(rank) % devices.size()]; }
  // Steps that a rank takes for one number of tokens, for the progress bar.
  int64_t steps() const { return sets + 2 * (warm_up + replays) + 2; }
};

// One rank, one number of tokens. Times are those of one pair, or of one dispatch, of each replay.
struct PointReport {
  int64_t tokens = 0;
  std::vector<double> pair_us, dispatch_us;
  int64_t rows_checked = 0, sums_checked = 0;
  int64_t wrong = 0;
  std::vector<std::string> findings;  // The first few.
  int64_t heap_bytes = 0, workspace_bytes = 0;
  // What travels for this rank's tokens, also to its own experts: there, and back. Payload only, averaged over the sets.
  double dispatch_bytes = 0, combine_bytes = 0;
};

// What is measured beside it, on the same devices; see cli/bench/baseline.h.
struct BaselineReport {
  std::string name;
  int64_t tokens = 0;
  int64_t dispatch_bytes = 0, combine_bytes = 0;  // That the rank sends; of a copy: that it copies.
  std::vector<double> pair_us;                    // Empty if skipped.
  int64_t wrong = 0;
  std::string skipped;  // Why; "" if it was not.
};

struct DeviceReport {
  std::string name, driver_cuda, runtime_cuda;
  int multiprocessors = 0;
};

// What travels in RankReport::details.
struct SeriesReport {
  std::vector<PointReport> points;
  std::vector<BaselineReport> baselines;
  std::string nccl;     // Version, "" if it was not used.
  DeviceReport device;  // Without a name where the ranks are on the host.
};

void to_json(nlohmann::json& json, const SeriesReport& report);
void from_json(const nlohmann::json& json, SeriesReport& report);

}  // namespace moeway::cli
