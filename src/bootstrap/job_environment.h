// What the environment says about the job: the variables of torchrun, Open MPI and Slurm, and moeway's own, which come
// first. The table is in docs/bootstrap.md.
#pragma once

#include <moeway/status.h>

#include <functional>
#include <string>

namespace moeway::bootstrap {

struct JobEnvironment {
  int rank = 0;
  int num_ranks = 1;
  // Where and how the ranks meet; empty with a single rank.
  std::string address;
  int port = 0;
  std::string secret;
};

// The value of a variable, or null.
using Lookup = std::function<const char*(const char* name)>;

// INVALID_ARGUMENT names variable, value and expectation.
Result<JobEnvironment> read_job_environment(const Lookup& lookup);

}  // namespace moeway::bootstrap
