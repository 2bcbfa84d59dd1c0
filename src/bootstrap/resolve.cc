#include "bootstrap/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/format.h"
#include "bootstrap/remote_deadline.h"

namespace moeway::bootstrap {
namespace {

using Answer = Result<std::vector<SocketAddress>>;

Answer look_up(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure = getaddrinfo(host.c_str(), fmt::format("{}", port).c_str(), &hints, &found);
  if (failure != 0) return error(MOEWAY_UNAVAILABLE, "cannot resolve '{}': {}", host, gai_strerror(failure));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress address;
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.length = at->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

// What the asking thread and the resolving one share. The latter may go on after the former has given up.
struct Query {
  std::mutex mutex;
  std::condition_variable answered;
  std::optional<Answer> answer;
};

}  // namespace

bool is_numeric(const std::string& host) { return look_up(host, 1, AI_NUMERICHOST).ok(); }

Result<std::vector<SocketAddress>> resolve(const std::string& host, int port, Deadline deadline) {
  if (Answer numeric = look_up(host, port, AI_NUMERICHOST); numeric.ok()) return numeric;
  const auto query = std::make_shared<Query>();
  try {
    std::thread([query, host, port] {
      Answer answer = look_up(host, port, 0);
      const std::lock_guard lock(query->mutex);
      query->answer = std::move(answer);
      query->answered.notify_all();
    }).detach();
  } catch (const std::system_error& failure) {
    return error(MOEWAY_UNAVAILABLE, "cannot resolve '{}': no thread for it: {}", host, failure.what());
  }
  std::unique_lock lock(query->mutex);
  const bool in_time = query->answered.wait_for(lock, std::min(deadline.left(), kLongestWait),
                                                [&] { return query->answer.has_value(); });
  if (!in_time) return error(MOEWAY_DEADLINE_EXCEEDED, "the name '{}' was not resolved in time", host);
  return *query->answer;
}

}  // namespace moeway::bootstrap
