// A way to do a round: bring each token's row to the ranks of its experts, and the weighted sum of what the experts make
// of it back. What a caller would have to do in any case is inside dispatch() and combine(): counting, packing,
// exchanging counts, unpacking, adding up.
#pragma once

#include <vector>

#include "round_inputs.h"

namespace bench {

class Round {
 public:
  virtual ~Round() = default;
  virtual const char* name() const = 0;
  // Leaves rows ordered by local expert in memory of the round.
  virtual void dispatch(const Inputs& inputs) = 0;
  // Runs the check function on those rows, in place. Not part of what is measured.
  virtual void apply_experts() = 0;
  // y [T, H]
  virtual void combine(const Inputs& inputs, std::vector<Bf16>& y) = 0;
  // Bytes of rows that this rank has handed over since the start, in both directions, those for itself included.
  virtual int64_t row_bytes_sent() const = 0;
};

}  // namespace bench
