// What one rank does in `moeway bench`: for each number of tokens it checks, times, and checks again.
#pragma once

#include <moeway/bootstrap.h>

#include "cli/bench/agreement.h"
#include "cli/bench/series.h"
#include "cli/progress_board.h"
#include "cli/rank_report.h"

namespace moeway::cli {

// Never throws; what went wrong is in the report. Its `details` are a SeriesReport, also of a rank that failed: then of the
// numbers of tokens before.
RankReport run_bench_rank(const Series& series, const Agreement& agreement, Result<Bootstrap> bootstrap,
                          RankProgress& progress) noexcept;

}  // namespace moeway::cli
