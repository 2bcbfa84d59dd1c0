// What all ranks of an AllToAll agree on, as the kernels and the memory layout need it.
#pragma once

#include <cstdint>

#include "exec/compiler.h"
#include "exec/quantise.h"
#include "exec/token_bytes.h"
#include "layout/experts.h"

namespace moeway::layout {

// How results come back to a token's owner.
enum class Results : int32_t {
  kReduced,   // One weighted sum per (token, rank), in the output type. Weights travel with dispatch.
  kPerRoute,  // One row per route, as the expert made it; the owner weighs and adds. Weights come with combine.
  kPerRank    // One row per (token, rank) that the caller has reduced, as it is (token_major).
};

enum class Rows : int32_t { kPadded, kPacked, kTokenMajor };

// How a slot says that its data has come (exec/unit.h): by a signal that is released after it, or by itself.
enum class Arrival : int32_t { kFlagged, kSelfValidating };

struct Shape {
  Experts experts;
  int32_t topk;          // K
  int32_t max_tokens;    // M
  int32_t replicas = 1;  // R, a divisor of W: ranks of a replica group (layout/replicas.h).
  int64_t row_bytes;     // A row of x.
  int64_t scales_bytes;  // A token's scales; 0 without.
  int64_t result_bytes;  // A result on its way back.
  Rows rows;
  Results results;
  Arrival payload_arrival;  // Of tokens.
  Arrival result_arrival;
  exec::Scaling scaling;  // Whether dispatch quantises: tokens are then given in bf16 and travel as e4m3 with scales.

  MOEWAY_FN exec::TokenFormat token() const { return {row_bytes, scales_bytes}; }
  MOEWAY_FN bool quantises() const { return scaling != exec::Scaling::kNone; }
  MOEWAY_FN bool payload_tells() const { return payload_arrival == Arrival::kSelfValidating; }
  MOEWAY_FN bool results_tell() const { return result_arrival == Arrival::kSelfValidating; }
  MOEWAY_FN int32_t num_ranks() const { return experts.num_ranks; }
  MOEWAY_FN bool replicated() const { return replicas > 1; }
  int32_t num_groups() const { return num_ranks() / replicas; }
  // Most tokens that one rank sends.
  MOEWAY_FN int32_t max_share() const { return replicated() ? (max_tokens + replicas - 1) / replicas : max_tokens; }
  // Results that a token can get back.
  MOEWAY_FN int32_t results_per_token() const {
    return results == Results::kPerRoute || topk < experts.num_ranks ? topk : experts.num_ranks;
  }
};

}  // namespace moeway::layout
