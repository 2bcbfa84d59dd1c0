// What one rank does in `moeway run`: rounds of dispatch, experts, combine, each checked.
#pragma once

#include <moeway/all_to_all.h>
#include <moeway/bootstrap.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "cli/progress_board.h"
#include "cli/rank_report.h"
#include "cli/routes.h"

namespace moeway::cli {

// The same for all ranks.
struct RankJob {
  AllToAllConfig config;
  const Routes* routes = nullptr;
  int64_t rounds = 1;
  uint64_t seed = 0;
  std::vector<int> devices;  // Rank r is on the CUDA device devices[r % size]; empty: on the host.
  std::chrono::milliseconds timeout{kDefaultTimeout};
};

// Rounds take turns: the first of three calls the one-call forms, the second (a lone round too) is timed: its halves
// start together, after barriers, and the third runs the four phases as the ranks come, since a barrier can hide faults.
enum class RoundKind { kOneCall, kTimed, kFree };
RoundKind round_kind(int64_t round, int64_t num_rounds);

// Never throws; what went wrong is in the report. `gathered`: if not null, the ranks exchange their reports at the end;
// it stays empty where one of them could not take part.
RankReport run_rank(const RankJob& job, Result<Bootstrap> bootstrap, RankProgress& progress,
                    std::vector<RankReport>* gathered = nullptr) noexcept;

}  // namespace moeway::cli
