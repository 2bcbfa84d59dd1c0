#include "cli/launched.h"

#include <cstdlib>
#include <utility>

namespace moeway::cli {

std::string launcher_name() {
  constexpr std::pair<const char*, const char*> kSizes[] = {
      {"OMPI_COMM_WORLD_SIZE", "mpirun"}, {"WORLD_SIZE", "torchrun"}, {"SLURM_STEP_NUM_TASKS", "srun"}};
  for (const auto& [variable, name] : kSizes)
    if (const char* size = std::getenv(variable); size != nullptr && std::atoi(size) > 1) return name;
  return "";
}

JobEnd run_launched(const RankJob& job, Bootstrap bootstrap) {
  JobEnd end;
  RankProgress progress;
  RankReport mine = run_rank(job, std::move(bootstrap), progress, &end.reports);
  // An exchange that worked on some ranks only counts as none, so that nobody speaks for a rank that has failed.
  if (!mine.failure.empty()) {
    end.reports.clear();
    end.reports.push_back(std::move(mine));
  }
  for (const RankReport& report : end.reports)
    if (!report.failure.empty()) end.failures.push_back({report.rank, RankFailure::Kind::kFailed, report.failure});
  return end;
}

}  // namespace moeway::cli
