// Sums of rows: a lane keeps a piece of the sum in registers and goes through the rows in their order. The order and
// the one rounding per step are part of the interface (docs/protocols/direct.md, "Sums").
#pragma once

#include <cstdint>

#include "exec/team.h"

namespace moeway::kernels::direct {

// acc[i] += weight * row[i], each with one rounding.
template <int kElements, class T>
MOEWAY_FN void accumulate(float (&acc)[kElements], const T* row, int64_t n, float weight) {
  if (n == kElements) {  // A constant number of steps: this is the loop that compilers unroll and vectorise.
    for (int i = 0; i < kElements; ++i) acc[i] = exec::fused_multiply_add(weight, exec::to_float(row[i]), acc[i]);
  } else {
    for (int i = 0; i < n; ++i) acc[i] = exec::fused_multiply_add(weight, exec::to_float(row[i]), acc[i]);
  }
}

// out = the sum over j < num_rows, in order, of weight(j) * row(j), starting from 0. row(j) is a pointer to `hidden`
// elements, or null where there is none; then weight(j) is not asked for.
template <class T, class Out, class Team, class Row, class Weight>
MOEWAY_FN void sum_rows(const Team& team, Out* out, int64_t hidden, int32_t num_rows, Row row, Weight weight) {
  constexpr int kElements = Team::kElements;
  team.lanes((hidden + kElements - 1) / kElements, [&](int64_t piece) {
    const int64_t begin = piece * kElements;
    const int64_t n = hidden - begin < kElements ? hidden - begin : kElements;
    float acc[kElements] = {};
    for (int32_t j = 0; j < num_rows; ++j) {
      const void* elements = row(j);
      if (elements != nullptr) accumulate(acc, static_cast<const T*>(elements) + begin, n, weight(j));
    }
    if (n == kElements) {
      for (int i = 0; i < kElements; ++i) out[begin + i] = exec::from_float<Out>(acc[i]);
    } else {
      for (int i = 0; i < n; ++i) out[begin + i] = exec::from_float<Out>(acc[i]);
    }
  });
}

}  // namespace moeway::kernels::direct
