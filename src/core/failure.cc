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

Status describe_overflow(const exec::Failure& failure, int rank, const moeway_all_to_all_config& config) {
  if (config.max_recv_tokens == 0) {  // There is room for all that can be.
    return error(MOEWAY_INTERNAL, "rank {}, dispatch_recv: counts hold a value that cannot be: {} rows up to expert {}",
                 rank, failure.seen, failure.site.index);
  }
  if (config.layout == MOEWAY_EXPERT_PADDED) {
    return error(MOEWAY_OVERFLOW,
                 "rank {}, dispatch_recv: expert {} gets {} rows, expected at most max_recv_tokens = {}", rank,
                 failure.site.index, failure.seen, failure.expected);
  }
  return error(
      MOEWAY_OVERFLOW,
      "rank {}, dispatch_recv: the rows up to expert {} are {} with padding, expected at most max_recv_tokens = {}",
      rank, failure.site.index, failure.seen, failure.expected);
}

}  // namespace

Status describe(const exec::Failure& failure, int rank, const moeway_all_to_all_config& config) {
  if (failure.kind == exec::FailureKind::kOverflow) return describe_overflow(failure, rank, config);
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
      return error(MOEWAY_DEADLINE_EXCEEDED, "{}waited {} ms for {}: {}", where, config.timeout_ms, what, counted);
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
    case exec::FailureKind::kOverflow:        // Above.
    case exec::FailureKind::kReplicasDiffer:  // Above.
    case exec::FailureKind::kNone:
      break;
  }
  return error(MOEWAY_INTERNAL, "{}unknown failure", where);
}

}  // namespace moeway::core
