// Rank 0's side of a meeting over sockets: lets the ranks of the job in, side by side, and turns everybody else away.
#pragma once

#include <moeway/status.h>

#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"

namespace moeway::bootstrap {

struct Reception {
  std::string where;       // For messages: "127.0.0.1:29501".
  std::string secret;      // Empty where the listener itself keeps strangers out.
  bool same_user = false;  // Admit processes of this user only (Unix-domain sockets).
  int num_ranks = 1;
  std::function<void()> on_end;  // Called once the listener is closed, before anybody hears of the outcome.
};

// Returns when all ranks are there: the stream to rank r at index r, nothing at 0. When it fails it has told those who
// are there. `listener` is non-blocking and listens; it is closed in any case.
Result<std::vector<Descriptor>> receive_ranks(Descriptor listener, const Reception& reception, Deadline deadline);

}  // namespace moeway::bootstrap
