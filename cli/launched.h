// Ranks that torchrun, Open MPI or Slurm has started (`moeway run --join`).
#pragma once

#include <string>

#include "cli/job.h"
#include "cli/rank_job.h"

namespace moeway::cli {

// The launcher that has started this process as one of several, "" if none.
std::string launcher_name();

// Runs this process's rank. The reports are those of all ranks, or, where they could not be exchanged, its own.
JobEnd run_launched(const RankJob& job, Bootstrap bootstrap);

}  // namespace moeway::cli
