// The words of the reference: what a job's ranks agree on, and who owns which expert.
#pragma once

#include <cstdint>
#include <string>

#include "reference/numbers.h"

namespace reference {

enum class Layout { kExpertPadded, kExpertPacked, kTokenMajor };
enum class Scales { kNone, kF32, kUe8m0, kBytes };
enum class Quantise { kNone, kLargest, kPowerOfTwo };
enum class Weights { kAtDispatch, kAtCombine };

struct Shape {
  int num_ranks = 2;
  int num_experts = 4;
  int topk = 2;
  int64_t hidden = 16;
  int64_t max_tokens = 8;
  DType dispatch_dtype = DType::kBf16;
  int64_t token_bytes = 0;  // Of a row of x when dispatch_dtype is bytes.
  Scales scales = Scales::kNone;
  int64_t scale_bytes = 0;              // Of a token's scales when they are opaque.
  Quantise quantise = Quantise::kNone;  // Tokens are given in bf16.
  DType row_dtype = DType::kBf16;
  DType output_dtype = DType::kBf16;
  Layout layout = Layout::kExpertPadded;
  int64_t alignment = 1;
  Weights weights = Weights::kAtDispatch;
  bool distinct_experts = false;
  int replicas = 1;             // Consecutive ranks that hold the same tokens.
  int64_t max_recv_tokens = 0;  // Rows of an expert (padded) or of all of a rank with padding (packed); 0: any number.

  // A row of x, in elements and in bytes.
  int64_t row_elements() const { return dispatch_dtype == DType::kBytes ? token_bytes : hidden; }
  int64_t row_bytes() const { return row_elements() * dtype_bytes(dispatch_dtype); }

  // What a rank gives to dispatch: x, and whether there are scales with it.
  DType given_dtype() const { return quantise == Quantise::kNone ? dispatch_dtype : DType::kBf16; }
  bool gives_scales() const { return quantise == Quantise::kNone && num_scales() > 0; }

  DType scale_dtype() const;
  // Scales of one token, in elements; 0 without scales.
  int64_t num_scales() const;
  int64_t token_scale_bytes() const { return num_scales() * dtype_bytes(scale_dtype()); }

  // The first E mod W ranks own one expert more than the others.
  int num_local_experts(int rank) const;
  int first_expert(int rank) const;
  int owner(int expert) const;

  // Of a token of rank's group: the group, and which rank of it sends the token when the group has num_tokens.
  int group(int rank) const { return rank / replicas; }
  int sender(int rank, int64_t token, int64_t num_tokens) const;
  // Tokens that all groups can have.
  int64_t all_tokens() const { return num_ranks / replicas * max_tokens; }
};

// One line with everything, for messages.
std::string describe(const Shape& shape);

}  // namespace reference
