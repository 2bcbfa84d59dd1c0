// Arguments of the dispatch phases of the direct protocol (docs/protocols/direct.md).
#pragma once

#include <cstdint>

#include "kernels/direct/round.h"

namespace moeway::kernels::direct {

inline constexpr uint64_t kNoBadRoute = ~uint64_t{0};
inline constexpr uint64_t kNoBadCount = ~uint64_t{0};

// What kernels find wrong in what a caller gave them. The round goes on; the caller is told.
struct Mistakes {
  // A route that cannot be: token * K + k of the lowest one found, kNoBadRoute if none. It counts as -1.
  uint64_t route = kNoBadRoute;
  // A number of tokens that cannot be: the most that could be << 32 | what it was (int32); kNoBadCount if none. It counts
  // as 0.
  uint64_t num_tokens = kNoBadCount;
};

// The caller's routing: int32 or int64 ids, any strides.
struct IndexView {
  MatrixView matrix;

  // An id as it was read: nothing is done to it until it is asked for, so that several reads are under way together.
  struct Raw {
    uint32_t low, high;
  };
  MOEWAY_FN Raw read(const std::byte* at) const {
    const auto* words = reinterpret_cast<const uint32_t*>(at);
    return {words[0], matrix.element_bytes == 8 ? words[1] : 0};
  }
  MOEWAY_FN int64_t value(const Raw& raw) const {
    return matrix.element_bytes == 8 ? static_cast<int64_t>(uint64_t{raw.high} << 32 | raw.low)
                                     : static_cast<int32_t>(raw.low);
  }
  MOEWAY_FN int64_t at(int64_t token, int64_t k) const { return value(read(matrix.at(token, k))); }
};

struct DispatchArgs {
  Round round;

  // A route that repeats an expert of its token is a caller's mistake, so an expert gets a row of a token at most once.
  bool distinct_experts;

  // In. Read by dispatch_send alone.
  int32_t num_tokens;
  const int32_t* num_tokens_at;  // Unless null: how many they are is read there; num_tokens is then the most.
  MatrixView x;                  // bf16 where the shape quantises, and then without scales.
  MatrixView scales;             // No columns without scales.
  IndexView topk_idx;
  MatrixView topk_weights;  // float; no data when weights come with combine.

  // Out. Written by dispatch_recv alone.
  RowsView out;  // Not given: token_major rows stay in the heap.
  RowsView out_scales;
  RowsView row_source;      // int32 [3] a row; may be not given.
  RowsView row_weight;      // float [1] a row; may be not given.
  int32_t* num_rows;        // [L]
  int64_t num_rows_stride;  // elements
  int64_t* first_row;       // [L]; may be null.
  int64_t first_row_stride;
  int32_t* num_dropped;  // [L]; may be null.
  int64_t num_dropped_stride;
  int64_t expert_capacity;  // padded: rows from one expert to the next, in x as [rows, H].
  int64_t alignment;        // packed: each expert starts at a multiple of it.
  // There is room for so many rows of each expert, and (packed) of all of them, padding included.
  uint32_t max_expert_rows;
  int64_t max_rows;
  bool drops;               // Rows without room are left out; else they are a failure.
  MatrixView out_topk_idx;  // token_major: int32 [W * M, K].
  MatrixView out_topk_weights;

  Mistakes* mistakes;

  // Worked out by complete().
  bool whole_tokens;  // Every token, and every row, consists of whole units (exec/token_bytes.h).
  bool whole_rows;

  // The last thing before a launch, on the host.
  void complete() {
    const layout::Shape& shape = round.shape();
    whole_tokens = x.whole_units() && (scales.columns == 0 || scales.whole_units());
    whole_rows =
        out.whole_units(shape.row_bytes) && (shape.scales_bytes == 0 || out_scales.whole_units(shape.scales_bytes));
  }

  MOEWAY_FN int32_t expert_of(int64_t id) const {
    return id < 0 || id >= round.shape().experts.num_experts ? -1 : static_cast<int32_t>(id);
  }
  // The expert of route (token, k); -1 for none, or for an id that cannot be.
  MOEWAY_FN int32_t named_expert(int64_t token, int64_t k) const { return expert_of(topk_idx.at(token, k)); }
  MOEWAY_FN exec::TokenBytes token(int64_t i) const { return {x.part(i), scales.part(i)}; }
};

// Compile-time choices of a dispatch kernel: whether rows are of tokens (layout::Rows::kTokenMajor) or of experts, whether
// the case is usual, and whether one that sends quantises.
template <bool kTokens, bool kIsUsual, bool kQuantises = false>
struct DispatchConfig {
  static constexpr bool kTokenMajor = kTokens;
  static constexpr bool kUsual = kIsUsual;
  static constexpr bool kQuantise = kQuantises;
};

// What a launch must be for kUsual: no replicas and no weights of rows, few routes of a token, few ranks, a token that a team
// holds at once and that consists, like its rows, of whole units, and payload that tells by itself unless rows are tokens.
inline bool usual(const DispatchArgs& args, int num_chunks) {
  const layout::Shape& shape = args.round.shape();
  const bool token_major = shape.rows == layout::Rows::kTokenMajor;
  return !shape.replicated() && !args.row_weight.given() && shape.topk <= exec::kSpread &&
         shape.num_ranks() <= exec::kSpread && num_chunks == 1 && args.whole_tokens &&
         (args.whole_rows || (token_major && !args.out.given())) && shape.payload_tells() != token_major;
}
template <class Config>
MOEWAY_FN constexpr bool payload_tells(const layout::Shape& shape) {
  return Config::kUsual ? !Config::kTokenMajor : shape.payload_tells();
}

// The following look at the routes before a token's route `k` one by one. Of the first kSpread routes all others are at
// hand otherwise.

MOEWAY_RARE bool names_before(const DispatchArgs* args, int64_t token, int32_t k, int32_t expert) {
  MOEWAY_ROLL
  for (int32_t j = 0; j < k; ++j) {
    if (args->named_expert(token, j) == expert) return true;
  }
  return false;
}

// Whether one of them goes to `dst`. A repeated expert does not matter: where it came first, it went to the same rank.
MOEWAY_RARE bool goes_before(const DispatchArgs* args, int64_t token, int32_t k, int32_t dst) {
  MOEWAY_ROLL
  for (int32_t j = 0; j < k; ++j) {
    const int32_t other = args->named_expert(token, j);
    if (other >= 0 && args->round.heap.owners.of(other) == dst) return true;
  }
  return false;
}

// What the token's routes outside of a chunk, base .. base + n - 1, mean for one to rank `dst`.
struct OtherChunks {
  int32_t before;      // Routes to the same rank, before the chunk,
  int32_t num_routes;  // and before or behind it.
};
MOEWAY_RARE OtherChunks other_chunks(const DispatchArgs* args, int64_t token, int32_t base, int32_t n, int32_t dst) {
  OtherChunks other{0, 0};
  MOEWAY_ROLL
  for (int32_t j = 0; j < args->round.shape().topk; ++j) {
    if (j >= base && j < base + n) continue;
    const int32_t expert = args->named_expert(token, j);
    if (expert < 0 || (args->distinct_experts && names_before(args, token, j, expert))) continue;
    const int32_t rank = args->round.heap.owners.of(expert);
    other.before += j < base && rank == dst;
    other.num_routes += rank == dst;
  }
  return other;
}

// Sets of ranks, 32 at a time: of the ranks low .. low + 31 a mask.
inline constexpr int32_t kRankBits = 32;
MOEWAY_FN uint32_t rank_bit(int32_t rank, int32_t low) {
  return rank >= low && rank < low + kRankBits ? uint32_t{1} << (rank - low) : 0;
}
// How many of `ranks` are below `rank`.
MOEWAY_FN int32_t num_below(uint32_t ranks, int32_t rank, int32_t low) {
  if (rank >= low + kRankBits) return exec::popcount(ranks);
  return rank < low ? 0 : exec::popcount(ranks & exec::below(rank - low));
}
// Those that own an expert of the token.
template <class Config, class Team>
MOEWAY_FN uint32_t ranks_of(const Team& team, const DispatchArgs& args, int64_t token, int32_t low) {
  uint32_t ranks = 0;
  MOEWAY_ROLL
  for (int32_t base = 0; base == 0 || unusual<Config>(base < args.round.shape().topk); base += exec::kSpread) {
    ranks |= team.unite(exec::spread_size(args.round.shape().topk - base), [&](int i) {
      const int32_t expert = args.named_expert(token, base + i);
      return expert < 0 ? 0 : rank_bit(args.round.heap.owners.of(expert), low);
    });
  }
  return ranks;
}
// f(low) for the sets.
template <class Config, class F>
MOEWAY_FN void for_each_set(int32_t num_ranks, F f) {
  f(0);
  MOEWAY_ROLL
  for (int32_t low = kRankBits; unusual<Config>(low < num_ranks); low += kRankBits) f(low);
}

}  // namespace moeway::kernels::direct
