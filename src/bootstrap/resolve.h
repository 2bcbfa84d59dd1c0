// Addresses of a host name, with a deadline: the system's resolver has none.
#pragma once

#include <moeway/status.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/deadline.h"

namespace moeway::bootstrap {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Whether `host` is an address in numbers.
bool is_numeric(const std::string& host);
// All stream addresses of `host`, best first. UNAVAILABLE if the name is not known at present; DEADLINE_EXCEEDED if the
// resolver did not answer.
Result<std::vector<SocketAddress>> resolve(const std::string& host, int port, Deadline deadline);

}  // namespace moeway::bootstrap
