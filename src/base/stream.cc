#include "base/stream.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace moeway {

Outgoing::Outgoing(const void* head, size_t head_bytes, const void* body, size_t body_bytes)
    : pieces_{Piece{static_cast<const std::byte*>(head), head_bytes},
              Piece{static_cast<const std::byte*>(body), body_bytes}} {}

Progress Outgoing::step(int fd) {
  while (!done()) {
    std::array<iovec, 2> vectors{};
    for (size_t i = 0; i < vectors.size(); ++i)
      vectors[i] = {const_cast<std::byte*>(pieces_[i].from), pieces_[i].bytes};
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = vectors.size();
    const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Progress::kBlocked;
    if (sent < 0) return Progress::kClosed;
    started_ = true;
    size_t left = static_cast<size_t>(sent);
    for (Piece& piece : pieces_) {
      const size_t taken = std::min(left, piece.bytes);
      if (taken == 0) continue;
      piece.from += taken;
      piece.bytes -= taken;
      left -= taken;
    }
  }
  return Progress::kDone;
}

Progress Incoming::step(int fd) {
  while (!done()) {
    const ssize_t got = recv(fd, to_, bytes_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Progress::kBlocked;
    if (got <= 0) return Progress::kClosed;
    to_ += got;
    bytes_ -= static_cast<size_t>(got);
  }
  return Progress::kDone;
}

int poll_timeout(Deadline deadline) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(1);
  return static_cast<int>(std::min(deadline.left(), kLongest).count());
}

bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    if (poll(&entry, 1, poll_timeout(deadline)) > 0) return true;
    if (deadline.passed()) return false;
  }
}

Progress send_all(int fd, const void* from, size_t bytes, Deadline deadline) {
  Outgoing outgoing(from, bytes);
  for (;;) {
    const Progress progress = outgoing.step(fd);
    if (progress != Progress::kBlocked || !wait_for(fd, POLLOUT, deadline)) return progress;
  }
}

Progress receive_all(int fd, void* to, size_t bytes, Deadline deadline) {
  Incoming incoming(to, bytes);
  for (;;) {
    const Progress progress = incoming.step(fd);
    if (progress != Progress::kBlocked || !wait_for(fd, POLLIN, deadline)) return progress;
  }
}

}  // namespace moeway
