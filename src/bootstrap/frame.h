// What ranks send each other over a stream once they have met: frames. A rank other than 0 sends a gather frame with
// its bytes and gets a result frame with everybody's; either side may send a failure frame instead, its last.
#pragma once

#include <moeway/status.h>

#include <cstdint>

#include "base/status_bytes.h"
#include "base/stream.h"

namespace moeway::bootstrap {

inline constexpr uint32_t kFrameMagic = 0x4657656d;  // "meWF"; the bytes of a rank of other endianness look different.

enum class FrameKind : uint32_t { kGather = 1, kResult = 2, kFailure = 3 };

struct FrameHeader {
  uint32_t magic;
  FrameKind kind;
  uint64_t call;     // How many calls the sender has made before.
  uint64_t bytes;    // Gather and result: bytes of each rank. Failure: sizeof(StatusBytes).
  uint64_t left_ms;  // Gather: how long the sender will wait.
};

// Sends a failure frame as far as the socket takes it at once, and nothing after it: who reads slowly will find it in
// the socket when they look.
void send_failure(int fd, const Status& why, uint64_t call);

// Reads frames of one kind, or a failure.
class FrameReader {
 public:
  enum class Outcome {
    kBlocked,   // More is to come.
    kComplete,  // The frame expected is here.
    kClosed,    // The other side has closed the connection.
    kFailed     // It has sent a failure, or something that does not belong here: see failure().
  };

  // `self` and `peer`: for messages.
  FrameReader(int self, int peer) : self_(self), peer_(peer) {}
  // Expects a frame of `kind` for `call` with `bytes` of each rank, its body of `body_bytes` to go to `body`.
  void expect(FrameKind kind, uint64_t call, uint64_t bytes, void* body, size_t body_bytes);
  // Expects nothing but a failure.
  void expect_nothing(uint64_t call) { expect(FrameKind::kFailure, call, 0, nullptr, 0); }

  Outcome step(int fd);
  const FrameHeader& header() const { return header_; }
  const Status& failure() const { return failure_; }

 private:
  enum class Stage { kHeader, kBody, kFailureBody };
  // What to read next, after a header; false if it does not belong here.
  bool take_header();

  int self_;
  int peer_;
  FrameKind kind_ = FrameKind::kFailure;
  uint64_t call_ = 0;
  uint64_t bytes_ = 0;
  void* body_ = nullptr;
  size_t body_bytes_ = 0;

  Stage stage_ = Stage::kHeader;
  Incoming incoming_;
  FrameHeader header_{};
  StatusBytes failure_body_{};
  Status failure_;
};

}  // namespace moeway::bootstrap
