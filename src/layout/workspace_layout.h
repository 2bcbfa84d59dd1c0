// Where each byte of a rank's private memory lies: what its own kernels leave for each other. No peer touches it.
#pragma once

#include <cstdint>

#include "exec/compiler.h"
#include "layout/heap_layout.h"
#include "layout/shape.h"

namespace moeway::layout {

// Most teams that a launch may have.
inline constexpr int kMaxTeams = 1024;

// Sums since creation; each a counter that only grows.
struct Counters {
  uint64_t routes_sent;
  uint64_t rows_received;
  uint64_t rows_dropped;
  uint64_t waited_until;  // exec::WaitClock's.
};
struct PeerCounters {
  uint64_t tokens_sent;
  uint64_t tokens_received;
  uint64_t results_sent;  // Result slots written.
  uint64_t waited_ns;
};

// A received token, kept for combine; its row places follow it. Without replicas one of this rank's own is kept under its
// number; others in the order in which their source sends them.
struct ReceivedToken {
  int32_t token;  // The source's number of it.
  int32_t result_index;
  int32_t num_routes;  // That have a place here.
  int32_t unused;
};

// Where a route's row lies in the output of dispatch, and how it counts.
struct RowPlace {
  int64_t row;  // padded: of the expert; packed: of all. Negative: there was no room for it.
  float weight;
  uint16_t local_expert;
  uint16_t k;
};

// What a token of this rank's own gets back.
struct OwnToken {
  int32_t num_results;  // 0 without routes. With results per route as many as ranks have an expert of it.
  int32_t own_index;    // This rank's place among them; -1 if it has no expert of the token, or does not send it.
};

// Starts are worked out once, on the host.
struct WorkspaceLayout {
  Shape shape;

  WorkspaceLayout() = default;
  explicit WorkspaceLayout(const Shape& of)
      : shape(of),
        received_bytes(static_cast<int64_t>(sizeof(ReceivedToken)) + static_cast<int64_t>(sizeof(RowPlace)) * of.topk),
        max_share(of.max_share()),
        topk_idx_begin_(round_up(num_tokens(kEpochs), 16)),
        own_begin_(round_up(topk_idx(kEpochs, 0), 16)),
        num_received_begin_(round_up(own(kEpochs, 0), 16)),
        received_begin_(round_up(num_received(kEpochs, 0), 16)) {}

  // uint64 [kMaxTeams]: how many dispatches have been sent. A word per team, which nobody else writes during a launch;
  // each launch moves all of them on.
  MOEWAY_FN int64_t epoch(int team) const { return int64_t{8} * team; }
  MOEWAY_FN int64_t counters() const { return epoch(kMaxTeams); }
  // PeerCounters [W].
  MOEWAY_FN int64_t peer_counters(int32_t rank) const {
    return counters() + static_cast<int64_t>(sizeof(Counters)) + rank * static_cast<int64_t>(sizeof(PeerCounters));
  }
  // float: 1, from creation on.
  MOEWAY_FN int64_t one() const { return peer_counters(shape.num_ranks()); }
  // int32: tokens of this rank in the epoch.
  MOEWAY_FN int64_t num_tokens(int epoch) const { return one() + 4 + 4 * epoch; }
  // int32 [K]: the experts of own token `token`, -1 for none.
  MOEWAY_FN int64_t topk_idx(int epoch, int64_t token) const {
    return topk_idx_begin_ + (int64_t{epoch} * shape.max_tokens + token) * 4 * shape.topk;
  }
  MOEWAY_FN int64_t own(int epoch, int64_t token) const {
    return own_begin_ + (int64_t{epoch} * shape.max_tokens + token) * static_cast<int64_t>(sizeof(OwnToken));
  }
  // uint32: tokens received from `src`.
  MOEWAY_FN int64_t num_received(int epoch, int32_t src) const {
    return num_received_begin_ + 4 * (int64_t{epoch} * shape.num_ranks() + src);
  }
  MOEWAY_FN int64_t received(int epoch, int32_t src, int64_t i) const {
    return received_begin_ + ((int64_t{epoch} * shape.num_ranks() + src) * max_share + i) * received_bytes;
  }
  int64_t bytes() const { return round_up(received(kEpochs, 0, 0), kLine); }

  int64_t received_bytes;
  int32_t max_share;  // Most tokens from one source.

 private:
  // In this order: each from where the last ends.
  int64_t topk_idx_begin_, own_begin_, num_received_begin_, received_begin_;
};

}  // namespace moeway::layout
