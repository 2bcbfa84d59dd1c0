#include "bootstrap/frame.h"

#include <sys/socket.h>

#include "base/format.h"

namespace moeway::bootstrap {

void send_failure(int fd, const Status& why, uint64_t call) {
  const FrameHeader header{kFrameMagic, FrameKind::kFailure, call, sizeof(StatusBytes), 0};
  const StatusBytes body = StatusBytes::from(why);
  Outgoing(&header, sizeof(header), &body, sizeof(body)).step(fd);
  shutdown(fd, SHUT_WR);
}

void FrameReader::expect(FrameKind kind, uint64_t call, uint64_t bytes, void* body, size_t body_bytes) {
  kind_ = kind;
  call_ = call;
  bytes_ = bytes;
  body_ = body;
  body_bytes_ = body_bytes;
  stage_ = Stage::kHeader;
  incoming_ = Incoming(&header_, sizeof(header_));
}

FrameReader::Outcome FrameReader::step(int fd) {
  for (;;) {
    const Progress progress = incoming_.step(fd);
    if (progress == Progress::kBlocked) return Outcome::kBlocked;
    if (progress == Progress::kClosed) return Outcome::kClosed;
    switch (stage_) {
      case Stage::kHeader:
        if (!take_header()) return Outcome::kFailed;
        break;
      case Stage::kBody:
        return Outcome::kComplete;
      case Stage::kFailureBody:
        failure_ = failure_body_.failure();
        return Outcome::kFailed;
    }
  }
}

bool FrameReader::take_header() {
  if (header_.magic == kFrameMagic && header_.kind == FrameKind::kFailure && header_.bytes == sizeof(StatusBytes)) {
    stage_ = Stage::kFailureBody;
    incoming_ = Incoming(&failure_body_, sizeof(failure_body_));
    return true;
  }
  if (header_.magic != kFrameMagic || header_.kind != kind_ || kind_ == FrameKind::kFailure) {
    failure_ = error(MOEWAY_INTERNAL, "rank {} has sent rank {} bytes that do not belong to call {} of its bootstrap",
                     peer_, self_, call_);
    return false;
  }
  if (header_.call != call_) {
    failure_ = error(MOEWAY_MISMATCH, "ranks are out of step: rank {} is in its all-gather {}, rank {} in {}", peer_,
                     header_.call, self_, call_);
    return false;
  }
  if (header_.bytes != bytes_) {
    failure_ = error(MOEWAY_MISMATCH, "ranks are out of step: rank {} gathers {} bytes, rank {} {}", peer_,
                     header_.bytes, self_, bytes_);
    return false;
  }
  stage_ = Stage::kBody;
  incoming_ = Incoming(body_, body_bytes_);
  return true;
}

}  // namespace moeway::bootstrap
