// Bytes over non-blocking stream sockets, step by step or until a deadline. No call raises SIGPIPE, none allocates.
#pragma once

#include <array>
#include <cstddef>

#include "base/deadline.h"

namespace moeway {

enum class Progress {
  kBlocked,  // The socket takes or has no more at present.
  kDone,     // All bytes have gone or come.
  kClosed    // The other side has closed, or the connection is broken.
};

// At most two pieces of the caller's memory on their way out.
class Outgoing {
 public:
  Outgoing() = default;
  Outgoing(const void* head, size_t head_bytes, const void* body = nullptr, size_t body_bytes = 0);
  // Sends what the socket takes.
  Progress step(int fd);
  bool done() const { return pieces_[0].bytes == 0 && pieces_[1].bytes == 0; }
  bool started() const { return started_; }

 private:
  struct Piece {
    const std::byte* from = nullptr;
    size_t bytes = 0;
  };
  std::array<Piece, 2> pieces_;
  bool started_ = false;
};

// A known number of bytes on their way into the caller's memory.
class Incoming {
 public:
  Incoming() = default;
  Incoming(void* to, size_t bytes) : to_(static_cast<std::byte*>(to)), bytes_(bytes) {}
  // Receives what the socket has, never more than is expected.
  Progress step(int fd);
  bool done() const { return bytes_ == 0; }

 private:
  std::byte* to_ = nullptr;
  size_t bytes_ = 0;
};

// For poll(): the time left, no longer than poll can wait.
int poll_timeout(Deadline deadline);
// Waits until `fd` has one of poll's `events`, an error, or the deadline has passed; then false.
bool wait_for(int fd, short events, Deadline deadline);
// kBlocked: the deadline has passed first.
Progress send_all(int fd, const void* from, size_t bytes, Deadline deadline);
Progress receive_all(int fd, void* to, size_t bytes, Deadline deadline);

}  // namespace moeway
