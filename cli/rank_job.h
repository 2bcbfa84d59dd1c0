// What one rank does in `moeway run`: rounds of dispatch, experts, combine, each checked.
#pragma once

#include <moeway/bootstrap.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "cli/object_run.h"
#include "cli/progress_board.h"
#include "cli/rank_report.h"

namespace moeway::cli {

// What makes a job uneven, for a soak. Follows from the seed, so that the same job is disturbed in the same way again.
struct Disturbance {
  uint64_t seed = 0;
  int64_t most_us = 0;  // Before some of its steps a rank stops for up to so long; 0: none does.
  int rank = -1;        // Only this one does; -1: all.
};

// The same for all ranks.
struct RankJob : ObjectJob {
  // More objects on the same communicator, with as many rounds. Their steps and those of the first one alternate.
  std::vector<ObjectJob> others;
  Disturbance disturbance;
  std::vector<int> devices;  // Rank r is on the CUDA device devices[r % size]; empty: on the host.
  std::chrono::milliseconds timeout{kDefaultTimeout};
};

// Never throws; what went wrong is in the report. `gathered`: if not null, the ranks exchange their reports at the end;
// it stays empty where one of them could not take part.
RankReport run_rank(const RankJob& job, Result<Bootstrap> bootstrap, RankProgress& progress,
                    std::vector<RankReport>* gathered = nullptr) noexcept;

}  // namespace moeway::cli
