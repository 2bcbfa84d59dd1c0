// What dispatch and combine must give, worked out the plain way from all ranks' inputs.
//
// With replicas, all ranks of a group have the same input, and each sends its share of the tokens.
// Rows of an expert are ordered by (source rank, token, k). Sums are float32, start from zero, and take each product in
// with one fused multiply-add:
//   weights at combine    y = round(sum over k of w[k] * row[k])
//   weights at dispatch   partial of a rank = round(sum over its k of w[k] * row[k]), y = round(sum over ranks of
//   partial) token_major           y = round(sum over ranks of the rank's row), rows weighted by the caller
// where round() rounds to the output's type and ranks come in ascending order. Onto an existing output, a sum starts from
// it, and a token without routes leaves it.
//
// With a bound of rows (Shape::max_recv_tokens) those beyond it, in the order of the output, are dropped: their routes
// add nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/inputs.h"
#include "reference/shape.h"

namespace reference {

struct Row {
  int expert;
  int32_t source;
  int32_t token;
  int32_t k;
  int64_t position;  // In x taken as [rows, H].
};

struct TokenRow {
  int32_t source;
  int32_t token;
  int64_t position;
};

// What one rank holds after a dispatch.
struct Received {
  std::vector<int32_t> num_rows;     // [L]
  std::vector<int64_t> first_row;    // [L]; not for token_major.
  std::vector<int32_t> num_dropped;  // [L]
  std::vector<Row> rows;             // Expert after expert; not for token_major.
  std::vector<TokenRow> tokens;      // token_major: those with a route to this rank.
  std::vector<int32_t> topk_idx;     // token_major: [W / R * M, K], local experts.
  std::vector<float> topk_weights;   // token_major: [W / R * M, K].
};

// `padded_rows`: rows per expert of the caller's expert_padded tensor; not used by the other layouts.
Received expected_dispatch(const Shape& shape, const Batch& batch, int rank, int64_t padded_rows);

// The stand-in for an expert: from a token (and its scales) to the row that goes into combine, H numbers of row_dtype.
// Another power of two for each expert with exact values, another odd factor with arbitrary ones. Where the token is
// opaque, its bytes are numbers.
std::vector<std::byte> expert_row(const Shape& shape, Values values, int expert, const std::byte* x,
                                  const std::byte* scales);

// token_major's row of a token: the weighted sum over the experts of one rank, as its kernel would return it.
// `topk_idx` and `topk_weights` are the token's K as dispatch gave them: local experts, -1 for the others.
std::vector<std::byte> token_row(const Shape& shape, Values values, int rank, const std::byte* x,
                                 const std::byte* scales, const int32_t* topk_idx, const float* topk_weights);

// What a rank gave to the batch, with -2 for the routes that are dropped where they go: the token still has them.
RankInput without_dropped(const Shape& shape, const Batch& batch, int rank);

// y [T, H] of the rank that gave `input`, of which no route is dropped; onto `before`, if that is not empty.
std::vector<std::byte> expected_combine(const Shape& shape, Values values, const RankInput& input,
                                        const std::vector<std::byte>& before = {});

// What a rank sends in one dispatch and gets back in its combine.
struct Traffic {
  int64_t tokens_sent = 0;  // (token, destination rank) pairs.
  int64_t routes_sent = 0;
  int64_t dispatch_sent_bytes = 0;
};
Traffic expected_traffic(const Shape& shape, const RankInput& input, int rank);

}  // namespace reference
