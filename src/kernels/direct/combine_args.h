// Arguments of the combine phases of the direct protocol (docs/protocols/direct.md).
#pragma once

#include <cstdint>

#include "kernels/direct/round.h"

namespace moeway::kernels::direct {

struct CombineArgs {
  Round round;
  int32_t hidden;  // Elements of a row and of a sum.

  // In. Read by combine_send, and by combine where both halves are one launch.
  RowsView rows;

  // In and out of combine_recv.
  MatrixView topk_weights;  // float; no data unless weights come with combine.
  MatrixView y;             // Contiguous elements.
};

// Compile-time choices of a combine kernel: the element types of the caller's rows and of its sums (float, exec::Bf16
// or exec::F16), and whether a rank sends one sum of its rows back (layout::Results::kReduced) or rows as they are.
template <class RowT, class OutT, bool kReduces>
struct CombineConfig {
  using Row = RowT;
  using Out = OutT;
  static constexpr bool kReduced = kReduces;
};

}  // namespace moeway::kernels::direct
