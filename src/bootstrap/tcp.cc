// Ranks on any machines that reach rank 0 over TCP. Who is let in: handshake.h.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/foreign_text.h"
#include "base/stream.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/counted_collective.h"
#include "bootstrap/join.h"
#include "bootstrap/reception.h"
#include "bootstrap/remote_deadline.h"
#include "bootstrap/resolve.h"
#include "bootstrap/star.h"

namespace moeway::bootstrap {
namespace {

// A job that has just been killed needs a moment to leave its port.
constexpr std::chrono::milliseconds kPortGrace{1000};
// A host may have addresses from which no answer ever comes; the next one gets its turn after this time.
constexpr std::chrono::milliseconds kConnectLimit{5000};

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

std::string where(const std::string& address, int port) {
  const bool six = address.find(':') != std::string::npos;
  return six ? fmt::format("[{}]:{}", quotable(address), port) : fmt::format("{}:{}", quotable(address), port);
}

void set_option(int fd, int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof(value)); }

Descriptor make_socket(int family) { return Descriptor(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// A small message waits for no other: gathers are a few bytes and somebody waits for each.
void send_at_once(int fd) { set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1); }

// 0, or the errno.
int listen_at(const SocketAddress& address, Descriptor* listener) {
  Descriptor candidate = make_socket(address.storage.ss_family);
  if (!candidate.valid()) return errno;
  // Connections of an earlier job that the kernel still remembers do not keep the port.
  set_option(candidate.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.storage.ss_family == AF_INET6) set_option(candidate.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(candidate.get(), address.get(), address.length) != 0) return errno;
  if (listen(candidate.get(), SOMAXCONN) != 0) return errno;
  *listener = std::move(candidate);
  return 0;
}

std::vector<SocketAddress> any_address(int port) {
  SocketAddress six;
  sockaddr_in6 any_six{};
  any_six.sin6_family = AF_INET6;
  any_six.sin6_port = htons(static_cast<uint16_t>(port));
  any_six.sin6_addr = in6addr_any;
  std::memcpy(&six.storage, &any_six, sizeof(any_six));
  six.length = sizeof(any_six);
  SocketAddress four;
  sockaddr_in any_four{};
  any_four.sin_family = AF_INET;
  any_four.sin_port = htons(static_cast<uint16_t>(port));
  std::memcpy(&four.storage, &any_four, sizeof(any_four));
  four.length = sizeof(any_four);
  return {six, four};
}

// Where rank 0 listens. A name may lead others to another interface than this machine itself (Debian's /etc/hosts calls
// the own name 127.0.1.1), so for a name rank 0 listens at all of them.
Result<std::vector<SocketAddress>> listening_addresses(const std::string& address, int port, Deadline deadline) {
  if (address == "localhost" || is_numeric(address)) return resolve(address, port, deadline);
  return any_address(port);
}

Result<Descriptor> open_listener(const std::string& address, int port, Deadline deadline) {
  const Result<std::vector<SocketAddress>> addresses = listening_addresses(address, port, deadline);
  if (!addresses.ok()) return addresses.status();
  const Deadline patience = sooner(deadline, Deadline::after(kPortGrace));
  for (;;) {
    int failure = EADDRNOTAVAIL;
    for (const SocketAddress& at : addresses.value()) {
      Descriptor listener;
      failure = listen_at(at, &listener);
      if (failure == 0) return listener;
      if (failure == EADDRINUSE) break;
    }
    if (failure == EADDRINUSE && !patience.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      continue;
    }
    return error(
        MOEWAY_UNAVAILABLE, "rank 0 cannot listen at {}: {}; expected {}", where(address, port), text_of(failure),
        failure == EADDRINUSE ? "a port that no other process uses" : "an address of the machine that rank 0 runs on");
  }
}

// A port that nobody listens at may be given to the connecting end itself, which then talks to itself.
bool is_connected_to_itself(int fd) {
  SocketAddress own;
  SocketAddress peer;
  own.length = peer.length = sizeof(sockaddr_storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0) return false;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) return false;
  return own.length == peer.length && std::memcmp(&own.storage, &peer.storage, own.length) == 0;
}

// 0, or the errno.
int connect_to(const SocketAddress& address, Deadline deadline, Descriptor* stream) {
  Descriptor candidate = make_socket(address.storage.ss_family);
  if (!candidate.valid()) return errno;
  if (connect(candidate.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    if (!wait_for(candidate.get(), POLLOUT, sooner(deadline, Deadline::after(kConnectLimit)))) return ETIMEDOUT;
    int failure = 0;
    socklen_t length = sizeof(failure);
    if (getsockopt(candidate.get(), SOL_SOCKET, SO_ERROR, &failure, &length) != 0) return errno;
    if (failure != 0) return failure;
  }
  if (is_connected_to_itself(candidate.get())) return ECONNREFUSED;
  send_at_once(candidate.get());
  *stream = std::move(candidate);
  return 0;
}

class Connector {
 public:
  Connector(const std::string& address, int port) : address_(address), port_(port) {}

  Attempt connect_once(Deadline deadline) {
    Attempt attempt;
    // A name may come to mean another machine while rank 0 is being started; asking more often would burden its server.
    if (ask_again_.passed()) {
      ask_again_ = Deadline::after(std::chrono::milliseconds(1000));
      Result<std::vector<SocketAddress>> found = resolve(address_, port_, deadline);
      problem_ = found.status().message();
      if (found.ok()) addresses_ = std::move(found).value();
    }
    attempt.problem = problem_;
    for (const SocketAddress& at : addresses_) {
      const int failure = connect_to(at, deadline, &attempt.stream);
      if (failure == 0) break;
      attempt.problem = text_of(failure);
    }
    return attempt;
  }

 private:
  const std::string address_;
  const int port_;
  std::vector<SocketAddress> addresses_;
  std::string problem_;  // Why there are no addresses.
  Deadline ask_again_ = Deadline::after(std::chrono::milliseconds(0));
};

Result<std::unique_ptr<Collective>> receive(const std::string& address, int port, const std::string& secret,
                                            int num_ranks, Deadline deadline) {
  Result<Descriptor> listener = open_listener(address, port, deadline);
  if (!listener.ok()) return listener.status();
  Reception reception;
  reception.where = where(address, port);
  reception.secret = secret;
  reception.num_ranks = num_ranks;
  Result<std::vector<Descriptor>> streams = receive_ranks(std::move(listener).value(), reception, deadline);
  if (!streams.ok()) return streams.status();
  for (const Descriptor& stream : streams.value()) {
    if (stream.valid()) send_at_once(stream.get());
  }
  return make_star_center(std::move(streams).value());
}

Result<std::unique_ptr<Collective>> join(const std::string& address, int port, const std::string& secret, int rank,
                                         int num_ranks, Deadline deadline) {
  Joining joining;
  joining.where = where(address, port);
  joining.secret = secret;
  joining.rank = rank;
  joining.num_ranks = num_ranks;
  Connector connector(address, port);
  joining.connect = [&](Deadline limit) { return connector.connect_once(limit); };
  Result<Descriptor> stream = join_ranks(joining, deadline);
  if (!stream.ok()) return stream.status();
  return make_star_point(std::move(stream).value(), rank, num_ranks);
}

}  // namespace

Result<std::unique_ptr<Collective>> meet_tcp(const std::string& address, int port, const std::string& secret, int rank,
                                             int num_ranks, std::chrono::milliseconds timeout) {
  if (Status status = check_place(rank, num_ranks); !status.ok()) return status;
  if (Status status = check_timeout(timeout); !status.ok()) return status;
  if (address.empty()) return invalid_argument("address is empty, expected rank 0's host name or address");
  if (port < 1 || port > 65535) return invalid_argument("port is {}, expected 1 to 65535", port);
  if (secret.empty()) return invalid_argument("secret is empty, expected the same text on all ranks");
  if (num_ranks == 1) return make_star_center(std::vector<Descriptor>(1));
  const Deadline deadline = Deadline::after(std::min(timeout, kLongestWait));
  return rank == 0 ? receive(address, port, secret, num_ranks, deadline)
                   : join(address, port, secret, rank, num_ranks, deadline);
}

}  // namespace moeway::bootstrap
