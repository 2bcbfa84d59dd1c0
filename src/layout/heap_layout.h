// Where each byte of the symmetric heap lies: offsets from the start of a rank's segment, the same on every rank. Each
// region starts where the last one ends. Who writes what, and when it may be written again: docs/protocols/direct.md;
// pictures: docs/layouts.md.
#pragma once

#include <cstdint>

#include "exec/compiler.h"
#include "layout/shape.h"

namespace moeway::layout {

// Two uses of every region in turn.
inline constexpr int kEpochs = 2;
// Regions that different ranks write start on lines of their own.
inline constexpr int64_t kLine = 128;

MOEWAY_FN int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Opens a source's counts of an epoch; rows per local expert (uint32) follow it.
struct CountsHead {
  uint64_t signal;     // The epoch whose counts these are.
  uint32_t num_slots;  // Tokens that this source sends here.
  uint32_t unused;
};

// A token that a source sends here; its routes to this rank follow it.
struct TokenHeader {
  uint64_t signal;       // The epoch; covers the header and the token's payload.
  int32_t token;         // The source's number of it: where its payload lies.
  int32_t result_index;  // Where among the token's results this rank's sum belongs; with results per route each route's
                         // k says it.
  int32_t num_routes;    // At least 1.
  int32_t unused;
  uint64_t unused2;  // Routes start at a multiple of 16 bytes.
};

struct Route {
  int32_t local_expert;
  uint32_t position;  // Among this source's rows of the expert.
  int32_t k;
  float weight;  // 0 when weights come with combine.
};

struct HeapLayout {
  Shape shape;

  // uint64: what rank `src` says about itself (exec::PeerWord). Not per epoch; 0 at creation.
  MOEWAY_FN int64_t peer_word(int32_t src) const { return src * kLine; }

  MOEWAY_FN int64_t counts_bytes() const {
    return round_up(static_cast<int64_t>(sizeof(CountsHead)) + int64_t{4} * shape.experts.max_local(), kLine);
  }
  MOEWAY_FN int64_t counts(int epoch, int32_t src) const {
    return peer_word(shape.num_ranks()) + (int64_t{epoch} * shape.num_ranks() + src) * counts_bytes();
  }

  MOEWAY_FN int64_t header_bytes() const {
    return static_cast<int64_t>(sizeof(TokenHeader)) + static_cast<int64_t>(sizeof(Route)) * shape.topk;
  }
  MOEWAY_FN int64_t headers_bytes() const { return round_up(header_bytes() * shape.max_tokens, kLine); }
  // The `i`-th token that `src` sends here, in the order of its tokens.
  MOEWAY_FN int64_t header(int epoch, int32_t src, int64_t i) const {
    return counts(kEpochs, 0) + (int64_t{epoch} * shape.num_ranks() + src) * headers_bytes() + i * header_bytes();
  }

  // A token's row, then its scales; the distance from one token to the next.
  MOEWAY_FN int64_t scales_offset() const { return round_up(shape.row_bytes, 16); }
  MOEWAY_FN int64_t payload_bytes() const { return scales_offset() + round_up(shape.scales_bytes, 16); }
  MOEWAY_FN int64_t payload(int epoch, int32_t src, int64_t token) const {
    return round_up(header(kEpochs, 0, 0), kLine) +
           ((int64_t{epoch} * shape.num_ranks() + src) * shape.max_tokens + token) * payload_bytes();
  }

  // uint64: the epoch of result `q` of own token `token`.
  MOEWAY_FN int64_t result_signal(int epoch, int64_t token, int32_t q) const {
    return round_up(payload(kEpochs, 0, 0), kLine) +
           8 * ((int64_t{epoch} * shape.max_tokens + token) * shape.results_per_token() + q);
  }
  MOEWAY_FN int64_t result_stride() const { return round_up(shape.result_bytes, 16); }
  MOEWAY_FN int64_t result(int epoch, int64_t token, int32_t q) const {
    return round_up(result_signal(kEpochs, 0, 0), kLine) +
           ((int64_t{epoch} * shape.max_tokens + token) * shape.results_per_token() + q) * result_stride();
  }

  MOEWAY_FN int64_t bytes() const { return round_up(result(kEpochs, 0, 0), kLine); }
};

}  // namespace moeway::layout
