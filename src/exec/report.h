// What a kernel tells about a failure. Kernels never trap: they fill a report, end, and the next call on the host turns
// it into a Status.
#pragma once

#include <cstdint>

namespace moeway::exec {

// The thing a wait waits for; its name is in the message.
enum class Awaited : int32_t { kCounts, kHeader, kPayload, kResult };

// A wait: for `peer` to do its part of `what`, number `index` of it.
struct WaitSite {
  Awaited what;
  int32_t peer;
  int64_t index;
};

enum class FailureKind : int32_t {
  kNone,
  kDeadline,    // The peer did not do its part in time.
  kPeerLost,    // The peer's process has ended.
  kPeerFailed,  // The peer told that it failed.
  kPeerClosed,  // The peer has closed the object.
  kOutOfStep,   // The peer is ahead of this rank's round: ranks made different calls.
  kCorrupt,     // The peer's data contradicts itself; nothing was written for it.
  kOverflow,    // More rows have come for an expert (the site's index) than there is room for; nothing was written.
  // The peer and the rank `site.index`, of one replica group, were given different numbers of tokens: `seen` and `expected`.
  kReplicasDiffer
};

struct Failure {
  FailureKind kind;
  WaitSite site;
  uint64_t expected;
  uint64_t seen;
};

// What a rank tells all others about itself, in its own word of their heaps. Written with release after everything else
// it has sent, so that who acquires it has also seen all signals that are ever going to come.
enum class PeerWord : uint64_t { kRunning = 0, kClosed = 1, kFailed = 2 };

}  // namespace moeway::exec
