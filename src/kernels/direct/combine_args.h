// Arguments of the combine phases of the direct protocol (docs/protocols/direct.md).
#pragma once

#include <cstdint>

#include "kernels/direct/round.h"

namespace moeway::kernels::direct {

struct CombineArgs {
  Round round;
  int32_t hidden;   // Elements of a row and of a sum.
  bool unweighted;  // Every weight is 1, whatever came with dispatch.

  // In. Read by combine_send, and by combine where both halves are one launch.
  RowsView rows;

  // In and out of combine_recv.
  MatrixView topk_weights;  // float; no data unless weights come with combine. If unweighted: complete() makes them 1.
  MatrixView y;             // Contiguous elements.
  bool adds_to_y;           // Sums start from what y holds; a token without results leaves it as it is.

  // Worked out by complete().
  bool whole_rows;  // Every row, and every sum, consists of whole units (exec/token_bytes.h).
  bool whole_sums;
  layout::Divisor slices;  // Of a row, where warps work on slices.

  // The last thing before a launch, on the host. `slice_elements`: of a warp.
  void complete(int64_t row_element_bytes, int32_t slice_elements) {
    if (unweighted) topk_weights = {round.memory + round.workspace.one(), 0, 0, round.shape().topk, 4};
    whole_rows = rows.whole_units(hidden * row_element_bytes);
    whole_sums = y.whole_units();
    slices = layout::Divisor((static_cast<uint32_t>(hidden) + static_cast<uint32_t>(slice_elements) - 1) /
                             static_cast<uint32_t>(slice_elements));
  }
};

// Compile-time choices of a combine kernel: the element types of the caller's rows and of its sums (float, exec::Bf16
// or exec::F16), whether a rank sends one sum of its rows back (layout::Results::kReduced) or rows as they are, and whether
// the case is usual.
template <class RowT, class OutT, bool kReduces, bool kIsUsual>
struct CombineConfig {
  using Row = RowT;
  using Out = OutT;
  static constexpr bool kReduced = kReduces;
  static constexpr bool kUsual = kIsUsual;
};

// What a launch must be for kUsual: no replicas, weights as they came, new sums, few routes of a token, rows and sums of whole units,
// results that tell by themselves.
inline bool usual(const CombineArgs& args) {
  const layout::Shape& shape = args.round.shape();
  return !shape.replicated() && !args.unweighted && !args.adds_to_y && shape.topk <= exec::kSpread && args.whole_rows &&
         args.whole_sums && shape.results_tell();
}

}  // namespace moeway::kernels::direct
