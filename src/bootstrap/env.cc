// Ranks that a launcher has started, or a person with moeway's own variables.
#include <cstdlib>

#include "bootstrap/bootstrap.h"
#include "bootstrap/counted_collective.h"
#include "bootstrap/job_environment.h"
#include "bootstrap/star.h"

namespace moeway::bootstrap {

Result<std::unique_ptr<Collective>> meet_env(std::chrono::milliseconds timeout) {
  if (Status status = check_timeout(timeout); !status.ok()) return status;
  const Result<JobEnvironment> read = read_job_environment([](const char* name) { return std::getenv(name); });
  if (!read.ok()) return read.status();
  const JobEnvironment& job = read.value();
  if (job.num_ranks == 1) return make_star_center(std::vector<Descriptor>(1));
  return meet_tcp(job.address, job.port, job.secret, job.rank, job.num_ranks, timeout);
}

}  // namespace moeway::bootstrap
