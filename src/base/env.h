// Every environment variable that the library reads by itself, read once per process. The variables of launchers
// (torchrun, Open MPI, Slurm) are src/bootstrap's.
#pragma once

#include <cstdint>
#include <string>

namespace moeway {

struct Env {
  // MOEWAY_TIMEOUT_MS: default limit of every wait for a peer, in milliseconds, 1 or more. Raise it where ranks may be
  // late, for example while they compile.
  int64_t timeout_ms = 30000;
  // MOEWAY_PERTURB: a seed; 0 (default) is off. CPU ranks then stop for random times at every step of their kernels, so
  // that tests see orders that a quiet machine never shows. For tests alone.
  uint64_t perturb = 0;
  // MOEWAY_LOG: "error" (default), "info" or "debug"; messages go to standard error.
  enum class Log { kError, kInfo, kDebug } log = Log::kError;
};

// A value that cannot be read is named on standard error once, and the default stands.
const Env& env();

}  // namespace moeway
