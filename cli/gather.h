// Ranks that a launcher has started exchange their reports over the library itself.
#pragma once

#include <moeway/communicator.h>

#include <chrono>
#include <vector>

#include "cli/rank_report.h"

namespace moeway::cli {

// Collective. Sets `all` to every rank's report, in rank order, on every rank.
Status gather_reports(Communicator& communicator, std::chrono::milliseconds timeout, const RankReport& mine,
                      std::vector<RankReport>& all);

}  // namespace moeway::cli
