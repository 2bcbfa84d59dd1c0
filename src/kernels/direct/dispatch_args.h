// Arguments of the dispatch phases of the direct protocol (docs/protocols/direct.md).
#pragma once

#include <cstdint>

#include "kernels/direct/round.h"

namespace moeway::kernels::direct {

inline constexpr uint64_t kNoBadRoute = ~uint64_t{0};

// The caller's routing: int32 or int64 ids, any strides.
struct IndexView {
  MatrixView matrix;

  MOEWAY_FN int64_t at(int64_t token, int64_t k) const {
    const std::byte* element = matrix.at(token, k);
    return matrix.element_bytes == 8 ? *reinterpret_cast<const int64_t*>(element)
                                     : *reinterpret_cast<const int32_t*>(element);
  }
};

struct DispatchArgs {
  Round round;

  // A route that repeats an expert of its token is a caller's mistake, so an expert gets a row of a token at most once.
  bool distinct_experts;

  // In. Read by dispatch_send alone.
  int32_t num_tokens;
  MatrixView x;
  MatrixView scales;  // No columns without scales.
  IndexView topk_idx;
  MatrixView topk_weights;  // float; no data when weights come with combine.

  // Out. Written by dispatch_recv alone.
  RowsView out;  // Not given: token_major rows stay in the heap.
  RowsView out_scales;
  RowsView row_source;      // int32 [3] a row; may be not given.
  int32_t* num_rows;        // [L]
  int64_t num_rows_stride;  // elements
  int64_t* first_row;       // [L]; may be null.
  int64_t first_row_stride;
  int64_t expert_capacity;  // padded: rows from one expert to the next, in x as [rows, H].
  int64_t alignment;        // packed: each expert starts at a multiple of it.
  int64_t max_rows;         // packed: of all experts.
  MatrixView out_topk_idx;  // token_major: int32 [W * M, K].
  MatrixView out_topk_weights;

  // A route that cannot be: token * K + k of the lowest one found, kNoBadRoute if none. Such a route is treated as -1,
  // and the round goes on; the caller is told.
  uint64_t* bad_route;

  // The expert of route (token, k); -1 for none, or for an id that cannot be.
  MOEWAY_FN int32_t named_expert(int64_t token, int64_t k) const {
    const int64_t id = topk_idx.at(token, k);
    return id < 0 || id >= round.shape().experts.num_experts ? -1 : static_cast<int32_t>(id);
  }
  // The same; also -1 for a repeated expert where experts are distinct.
  MOEWAY_FN int32_t expert(int64_t token, int64_t k) const {
    const int32_t id = named_expert(token, k);
    if (!distinct_experts || id < 0) return id;
    for (int64_t j = 0; j < k; ++j) {
      if (topk_idx.at(token, j) == id) return -1;
    }
    return id;
  }
  MOEWAY_FN exec::TokenBytes token(int64_t i) const { return {x.part(i), scales.part(i)}; }
  MOEWAY_FN exec::TokenBytes row(int32_t local_expert, int64_t row) const {
    const layout::Shape& shape = round.shape();
    return {{out.row(local_expert, row), shape.row_bytes, 1, 1},
            {out_scales.row(local_expert, row), shape.scales_bytes, 1, 1}};
  }
  MOEWAY_FN bool whole_tokens() const { return x.whole_units() && (scales.columns == 0 || scales.whole_units()); }
  MOEWAY_FN bool whole_rows() const {
    const layout::Shape& shape = round.shape();
    return out.whole_units(shape.row_bytes) && (shape.scales_bytes == 0 || out_scales.whole_units(shape.scales_bytes));
  }
};

}  // namespace moeway::kernels::direct
