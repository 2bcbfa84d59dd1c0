// What a benchmark on CUDA devices measures beside moeway, in the same run and in the same way (recorded calls, slowest
// rank), so that its figures can be compared with something:
//
//   copy             a copy within the device of the bytes that travel for a rank's tokens, there and back: no exchange takes
//                    less
//   nccl_per_rank    a dense all-to-all by NCCL, padded to all tokens for every rank, there and back
//   nccl_per_expert  the same, padded to all tokens for every expert: what fixed-size exchanges of masked rows come to
//
// The dense ones move bytes only: no counting, no fan-out to experts, no sums.
#pragma once

#include <moeway/bootstrap.h>

#include <string>

#include "cli/bench/agreement.h"
#include "cli/bench/series.h"
#include "cli/progress_board.h"
#include "cli/rank_report.h"

namespace moeway::cli {

// As run_bench_rank, on CUDA devices. `nccl`: the library's file or name.
RankReport run_baseline_rank(const Series& series, const std::string& nccl, const Agreement& agreement,
                             Result<Bootstrap> bootstrap, RankProgress& progress) noexcept;

// Steps of a rank for one number of tokens, for the progress bar.
inline constexpr int64_t kBaselineSteps = 3;

}  // namespace moeway::cli
