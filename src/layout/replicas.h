// Replica groups: R consecutive ranks that hold the same tokens. Each of them sends a part, its share: the first T mod R
// members ceil(T / R) consecutive tokens, the others floor(T / R), in the order of the members. So the tokens of a group
// in their order are those of its members in theirs.
#pragma once

#include <cstdint>

#include "exec/compiler.h"
#include "layout/experts.h"

namespace moeway::layout {

struct TokenRange {
  int32_t begin, end;

  MOEWAY_FN int32_t size() const { return end - begin; }
};

// Made on the host.
class Replicas {
 public:
  Replicas() = default;
  explicit Replicas(int32_t replicas) : by_replicas_(static_cast<uint32_t>(replicas)) {}

  MOEWAY_FN int32_t num() const { return static_cast<int32_t>(by_replicas_.divisor); }
  // The group that a rank belongs to, and the first of its ranks.
  MOEWAY_FN int32_t group(int32_t rank) const {
    return static_cast<int32_t>(by_replicas_.divide(static_cast<uint32_t>(rank)));
  }
  MOEWAY_FN int32_t first_rank(int32_t rank) const { return group(rank) * num(); }
  MOEWAY_FN bool is_last(int32_t rank) const { return rank - first_rank(rank) == num() - 1; }
  // Of the `num_tokens` tokens of its group, those that a rank sends.
  MOEWAY_FN TokenRange share(int32_t rank, int32_t num_tokens) const {
    if (num() == 1) return {0, num_tokens};
    const int32_t member = rank - first_rank(rank);
    const auto small = static_cast<int32_t>(by_replicas_.divide(static_cast<uint32_t>(num_tokens)));
    const int32_t num_large = num_tokens - small * num();
    const int32_t begin = member * small + (member < num_large ? member : num_large);
    return {begin, begin + small + (member < num_large ? 1 : 0)};
  }

 private:
  Divisor by_replicas_;
};

}  // namespace moeway::layout
