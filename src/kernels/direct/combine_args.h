// Arguments of the combine phases of the direct protocol (docs/protocols/direct.md).
#pragma once

#include <cstdint>

#include "kernels/direct/round.h"

namespace moeway::kernels::direct {

struct CombineArgs {
  Round round;
  int64_t hidden;  // Elements of a row and of a sum.

  // In. Read by combine_send alone.
  RowsView rows;

  // In and out of combine_recv.
  MatrixView topk_weights;  // float; no data unless weights come with combine.
  MatrixView y;             // Contiguous elements.
};

// Compile-time choices of a combine kernel: the element types of the caller's rows and of its sums (float, exec::Bf16
// or exec::F16).
template <class RowT, class OutT>
struct CombineConfig {
  using Row = RowT;
  using Out = OutT;
};

}  // namespace moeway::kernels::direct
