// Sockets at 127.0.0.1 for tests.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "base/deadline.h"
#include "base/descriptor.h"

namespace moeway::unit {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline Descriptor make_tcp_socket() { return Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// A listening socket; `*port` is its port, chosen by the system where it was 0.
inline Descriptor listen_at(int* port) {
  Descriptor listener = make_tcp_socket();
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = loopback(*port);
  socklen_t length = sizeof(address);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) std::abort();
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
  *port = ntohs(address.sin_port);
  listen(listener.get(), 16);
  return listener;
}

// Connects as soon as somebody listens, within 10 s; else empty.
inline Descriptor connect_at(int port) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  const sockaddr_in address = loopback(port);
  while (!deadline.passed()) {
    Descriptor stream = make_tcp_socket();
    if (connect(stream.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return stream;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return Descriptor();
}

// A port that nobody uses at present, below those that the system gives to outgoing connections: one of these could take
// it before the test does.
inline int free_port() {
  static std::mt19937 random{std::random_device{}()};
  for (;;) {
    const int port = 10000 + static_cast<int>(random() % 10000);
    const Descriptor probe = make_tcp_socket();
    const sockaddr_in address = loopback(port);
    if (bind(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return port;
  }
}

}  // namespace moeway::unit
