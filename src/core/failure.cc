#include "core/failure.h"

#include <string>

#include "base/format.h"

namespace moeway::core {
namespace {

std::string awaited(const exec::WaitSite& site) {
  switch (site.what) {
    case exec::Awaited::kCounts:
      return fmt::format("the counts of rank {} (its dispatch_send)", site.peer);
    case exec::Awaited::kHeader:
      return fmt::format("token number {} of rank {} (its dispatch_send)", site.index, site.peer);
    case exec::Awaited::kPayload:
      return fmt::format("token {} of rank {} (its dispatch_send)", site.index, site.peer);
    case exec::Awaited::kResult:
      return fmt::format("the result of token {} from rank {} (its combine_send)", site.index, site.peer);
  }
  return "?";
}

}  // namespace

Status describe(const exec::Failure& failure, int rank, std::chrono::milliseconds timeout) {
  const bool results = failure.site.what == exec::Awaited::kResult;
  if (failure.kind == exec::FailureKind::kReplicasDiffer) {
    return error(
        MOEWAY_MISMATCH,
        "rank {}, dispatch_recv: ranks {} and {} of one replica group were given {} and {} tokens, expected the "
        "same tokens on all ranks of a group",
        rank, failure.site.index, failure.site.peer, failure.expected, failure.seen);
  }
  const std::string phase = fmt::format("rank {}, {}", rank, results ? "combine_recv" : "dispatch_recv");
  const std::string where = failure.kind == exec::FailureKind::kCorrupt
                                ? phase + ": "
                                : fmt::format("{} of round {}: ", phase, failure.expected);
  const std::string counted = fmt::format("expected round {}, seen round {}", failure.expected, failure.seen);
  const std::string what = awaited(failure.site);
  const int peer = failure.site.peer;
  switch (failure.kind) {
    case exec::FailureKind::kDeadline:
      return error(MOEWAY_DEADLINE_EXCEEDED, "{}waited {} ms for {}: {}", where, timeout.count(), what, counted);
    case exec::FailureKind::kPeerLost:
      return error(MOEWAY_PEER_LOST, "{}the process of rank {} has ended; waited for {}: {}", where, peer, what,
                   counted);
    case exec::FailureKind::kPeerFailed:
      return error(MOEWAY_PEER_LOST, "{}rank {} has reported a failure; waited for {}: {}", where, peer, what, counted);
    case exec::FailureKind::kPeerClosed:
      return error(MOEWAY_PEER_LOST, "{}rank {} has closed the object; waited for {}: {}", where, peer, what, counted);
    case exec::FailureKind::kOutOfStep:
      return error(MOEWAY_MISMATCH, "{}rank {} is ahead: ranks have made different calls; waited for {}: {}", where,
                   peer, what, counted);
    case exec::FailureKind::kCorrupt:
      return error(MOEWAY_INTERNAL, "{}{} holds a value that cannot be: expected below {}, seen {}", where, what,
                   failure.expected, static_cast<int64_t>(failure.seen));
    case exec::FailureKind::kReplicasDiffer:  // Above.
    case exec::FailureKind::kNone:
      break;
  }
  return error(MOEWAY_INTERNAL, "{}unknown failure", where);
}

}  // namespace moeway::core
