// Where each byte of the symmetric heap lies: offsets from the start of a rank's segment, the same on every rank. Each
// region starts where the last one ends. Who writes what, and when it may be written again: docs/protocols/direct.md;
// pictures: docs/layouts.md.
#pragma once

#include <array>
#include <cstdint>

#include "exec/compiler.h"
#include "exec/numeric.h"
#include "exec/unit.h"
#include "layout/replicas.h"
#include "layout/shape.h"

namespace moeway::layout {

// Two uses of every region in turn.
inline constexpr int kEpochs = 2;
// Regions that different ranks write start on lines of their own.
inline constexpr int64_t kLine = 128;
// No part of a result is shorter, but for the last.
inline constexpr int64_t kSliceBytes = 1024;

MOEWAY_FN int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Opens a source's counts of an epoch; a word per local expert (rows of it) follows. Words are exec::tagged_count()s.
struct CountsHead {
  uint64_t credit;      // Signal: the epoch. The source has finished with its regions of the epoch before.
  uint64_t num_slots;   // Tokens that this source sends here.
  uint64_t num_tokens;  // Of the source's group, with replicas alone.
};

// A token that a source sends here is announced by tagged units: one of the token, then one for each of its routes to
// this rank.
struct TokenHead {
  int32_t token;          // The source's number of it: where its payload lies.
  uint16_t result_index;  // Where among the token's results this rank's sum belongs; with results per route each
                          // route's k says it.
  uint16_t num_routes;    // At least 1.

  static MOEWAY_FN exec::Unit pack(const TokenHead& head, uint64_t epoch) {
    return exec::tagged(static_cast<uint32_t>(head.token), uint32_t{head.result_index} << 16 | head.num_routes, 0,
                        epoch);
  }
  static MOEWAY_FN TokenHead unpack(const exec::Unit& unit) {
    return {static_cast<int32_t>(unit.word[0]), static_cast<uint16_t>(unit.word[1] >> 16),
            static_cast<uint16_t>(unit.word[1])};
  }
};

struct Route {
  int32_t local_expert;
  int32_t k;
  uint32_t position;  // Among this source's rows of the expert.
  float weight;       // 0 when weights come with combine.
};

// A route takes 48 bits of its unit besides the weight: how they are shared out.
struct RouteBits {
  int32_t expert;
  int32_t k;

  RouteBits() = default;
  explicit RouteBits(const Shape& shape) : expert(bits_for(shape.experts.max_local())), k(bits_for(shape.topk)) {}
  // Bits that a route needs; at most 48 are there.
  static int64_t needed(const Shape& shape) {
    return int64_t{bits_for(shape.experts.max_local())} + bits_for(shape.topk) +
           bits_for(int64_t{shape.max_tokens} * shape.topk);
  }

  MOEWAY_FN exec::Unit pack(const Route& route, uint64_t epoch) const {
    const uint64_t code = uint64_t{route.position} << (expert + k) | static_cast<uint64_t>(route.k) << expert |
                          static_cast<uint64_t>(route.local_expert);
    return exec::tagged(exec::float_bits(route.weight), static_cast<uint32_t>(code), static_cast<uint16_t>(code >> 32),
                        epoch);
  }
  MOEWAY_FN Route unpack(const exec::Unit& unit) const {
    const uint64_t code = uint64_t{unit.word[2] & 0xffffu} << 32 | unit.word[1];
    return {static_cast<int32_t>(code & ((uint64_t{1} << expert) - 1)),
            static_cast<int32_t>(code >> expert & ((uint64_t{1} << k) - 1)),
            static_cast<uint32_t>(code >> (expert + k)), exec::float_from_bits(unit.word[0])};
  }

 private:
  // For numbers below n.
  static int32_t bits_for(int64_t n) {
    int32_t bits = 1;
    while (int64_t{1} << bits < n) ++bits;
    return bits;
  }
};

struct Range {
  int64_t begin;
  int64_t bytes;
};

// Starts and strides are worked out once, on the host: kernels ask for places all the time.
struct HeapLayout {
  Shape shape;
  Owners owners;
  RouteBits route_bits;
  Replicas replicas;

  HeapLayout() = default;
  explicit HeapLayout(const Shape& of)
      : shape(of),
        owners(of.experts),
        route_bits(of),
        replicas(of.replicas),
        num_groups(of.num_groups()),
        max_share(of.max_share()),
        counts_bytes(round_up(static_cast<int64_t>(sizeof(CountsHead)) + int64_t{8} * of.experts.max_local(), kLine)),
        header_bytes(static_cast<int64_t>(sizeof(exec::Unit)) * (int64_t{1} + of.topk)),
        headers_bytes(round_up(header_bytes * of.max_share(), kLine)),
        payload_bytes(int64_t{16} * of.token().num_units()),
        result_slices((of.result_bytes + kSliceBytes - 1) / kSliceBytes),
        result_bytes(round_up(of.result_bytes, 32)),
        counts_begin_(peer_word(of.num_ranks())),
        headers_begin_(counts(kEpochs, 0)),
        payload_signals_begin_(round_up(header(kEpochs, 0, 0), kLine)),
        payloads_begin_(round_up(payload_signal(kEpochs, 0, 0), kLine)),
        result_signals_begin_(round_up(payload(kEpochs, 0, 0), kLine)),
        results_begin_(round_up(result_signal(kEpochs, 0, 0, 0), kLine)) {}

  // uint64: what rank `src` says about itself (exec::PeerWord). Not per epoch; 0 at creation.
  MOEWAY_FN int64_t peer_word(int32_t src) const { return src * kLine; }

  MOEWAY_FN int64_t counts(int epoch, int32_t src) const {
    return counts_begin_ + (int64_t{epoch} * shape.num_ranks() + src) * counts_bytes;
  }
  // The `i`-th token that `src` sends here, in the order of its tokens.
  MOEWAY_FN int64_t header(int epoch, int32_t src, int64_t i) const {
    return headers_begin_ + (int64_t{epoch} * shape.num_ranks() + src) * headers_bytes + i * header_bytes;
  }
  // uint64: the epoch of the payload of a token of a replica group, where it is flagged. Tokens have their places by group,
  // whichever member sends one; without replicas every rank is a group.
  MOEWAY_FN int64_t payload_signal(int epoch, int32_t group, int64_t token) const {
    return payload_signals_begin_ + 8 * token_number(epoch, group, token);
  }
  // A token's row, then its scales.
  MOEWAY_FN int64_t payload(int epoch, int32_t group, int64_t token) const {
    return payloads_begin_ + token_number(epoch, group, token) * payload_bytes;
  }
  // uint64: the epoch of a part of result `q` of own token `token`, where it is flagged.
  MOEWAY_FN int64_t result_signal(int epoch, int64_t token, int32_t q, int64_t slice) const {
    return result_signals_begin_ + 8 * (result_number(epoch, token, q) * result_slices + slice);
  }
  MOEWAY_FN int64_t result(int epoch, int64_t token, int32_t q) const {
    return results_begin_ + result_number(epoch, token, q) * result_bytes;
  }

  int64_t bytes() const { return round_up(result(kEpochs, 0, 0), kLine); }
  // What must hold all ones before a peer writes it: the payload of both epochs, and the results.
  std::array<Range, 2> self_validating() const {
    return {Range{payload(0, 0, 0), shape.payload_tells() ? payload(kEpochs, 0, 0) - payload(0, 0, 0) : 0},
            Range{result(0, 0, 0), shape.results_tell() ? result(kEpochs, 0, 0) - result(0, 0, 0) : 0}};
  }

  int32_t num_groups;
  int32_t max_share;  // Most tokens that one rank sends.
  int64_t counts_bytes;
  int64_t header_bytes;
  int64_t headers_bytes;  // Of one source.
  int64_t payload_bytes;
  int64_t result_slices;  // Most parts that a result is written and signalled in.
  int64_t result_bytes;   // Lanes write up to 8 elements at once, and so some bytes more than there are.

 private:
  MOEWAY_FN int64_t token_number(int epoch, int32_t group, int64_t token) const {
    return (int64_t{epoch} * num_groups + group) * shape.max_tokens + token;
  }
  MOEWAY_FN int64_t result_number(int epoch, int64_t token, int32_t q) const {
    return (int64_t{epoch} * shape.max_tokens + token) * shape.results_per_token() + q;
  }

  // In this order: each from where the last ends.
  int64_t counts_begin_, headers_begin_, payload_signals_begin_, payloads_begin_, result_signals_begin_, results_begin_;
};

}  // namespace moeway::layout
