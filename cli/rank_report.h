// What one rank has to say at the end of a job, and its way to the one who prints.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/check.h"
#include "cli/findings.h"

namespace moeway::cli {

inline constexpr int kNumTimedPhases = 4;
inline constexpr const char* kTimedPhaseNames[kNumTimedPhases] = {"dispatch_send", "dispatch_recv", "combine_send",
                                                                  "combine_recv"};
using PhaseTimes = std::array<float, kNumTimedPhases>;  // Microseconds.

struct RankReport {
  int rank = 0;
  std::string failure;  // "" or the call that failed, the round, and why.
  std::string transport;
  int64_t rounds = 0;  // Finished.
  int64_t first_expert = 0;
  std::vector<int64_t> expert_rows;
  Moved moved;
  int64_t rows_checked = 0, sums_checked = 0;
  int64_t num_mismatches = 0;
  std::vector<Mismatch> mismatches;  // The first few.
  // As the library counts them.
  int64_t dispatch_sent_bytes = 0, combine_sent_bytes = 0;
  std::vector<PhaseTimes> times;  // Of the timed rounds, in order.
  std::string details;            // What a command has to say besides, as JSON; "" if nothing.

  bool ok() const { return failure.empty() && num_mismatches == 0; }
};

void to_json(nlohmann::json& json, const Mismatch& mismatch);
void from_json(const nlohmann::json& json, Mismatch& mismatch);
void to_json(nlohmann::json& json, const RankReport& report);
void from_json(const nlohmann::json& json, RankReport& report);

}  // namespace moeway::cli
