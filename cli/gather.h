// Ranks that a launcher has started exchange their reports over the library itself.
#pragma once

#include <moeway/communicator.h>

#include <chrono>
#include <vector>

#include "cli/device/place.h"
#include "cli/rank_report.h"

namespace moeway::cli {

// Collective. `place` is where the communicator's ranks are. Sets `all` to every rank's report, in rank order, on every rank.
Status gather_reports(Communicator& communicator, Place& place, std::chrono::milliseconds timeout,
                      const RankReport& mine, std::vector<RankReport>& all);

}  // namespace moeway::cli
