// Which rank owns which expert: the first E mod W ranks own ceil(E / W) consecutive experts, the others floor(E / W).
#pragma once

#include <cstdint>

#include "exec/compiler.h"

namespace moeway::layout {

struct Experts {
  int32_t num_experts;  // E >= 1
  int32_t num_ranks;    // W >= 1

  MOEWAY_FN int32_t num_large() const { return num_experts % num_ranks; }  // Ranks with one expert more.
  MOEWAY_FN int32_t small_count() const { return num_experts / num_ranks; }
  MOEWAY_FN int32_t max_local() const { return small_count() + (num_large() > 0 ? 1 : 0); }

  MOEWAY_FN int32_t count(int32_t rank) const { return small_count() + (rank < num_large() ? 1 : 0); }
  MOEWAY_FN int32_t first(int32_t rank) const {
    return rank * small_count() + (rank < num_large() ? rank : num_large());
  }
  // Requires 0 <= expert < num_experts.
  MOEWAY_FN int32_t owner(int32_t expert) const {
    const int32_t in_large = num_large() * (small_count() + 1);
    return expert < in_large ? expert / (small_count() + 1) : num_large() + (expert - in_large) / small_count();
  }
};

}  // namespace moeway::layout
