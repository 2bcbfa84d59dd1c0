// The other ranks' side of a meeting over sockets: find rank 0, make sure of it, and wait until all are there.
#pragma once

#include <moeway/status.h>

#include <functional>
#include <string>

#include "base/deadline.h"
#include "base/descriptor.h"

namespace moeway::bootstrap {

// A connection, or why there is none at present.
struct Attempt {
  Descriptor stream;
  std::string problem;
};

struct Joining {
  std::string where;   // For messages: "127.0.0.1:29501".
  std::string secret;  // As rank 0's.
  int rank = 0;
  int num_ranks = 1;
  std::function<Attempt(Deadline)> connect;  // Tries once.
};

// The stream to rank 0, once all ranks are there. Tries again while rank 0 is not there yet; what waiting cannot cure
// fails at once.
Result<Descriptor> join_ranks(const Joining& joining, Deadline deadline);

}  // namespace moeway::bootstrap
