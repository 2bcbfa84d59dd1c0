// What a team of a dispatch kernel keeps in its scratch.
#pragma once

#include <cstdint>
#include <type_traits>

#include "exec/team.h"
#include "kernels/direct/round.h"

namespace moeway::kernels::direct {

class DispatchScratch {
 public:
  // While tokens are announced.
  uint32_t* rows;   // [E]: routes to each expert before the next token.
  uint32_t* slots;  // [W]: tokens to each rank before it.

  // From the counts of all sources on.
  uint32_t* num_rows;     // [L]: of each expert, as far as there is room.
  uint32_t* num_arrived;  // [L]: what all sources send for it.
  uint32_t* first_of;     // [W, L]: the first row of a source among the expert's.
  uint32_t* num_slots;    // [W]: tokens from each source.
  int64_t* padded_rows;   // [L]: num_rows, rounded up; packed alone.
  int64_t* first_row;     // [L]: of each expert; packed alone.

  std::byte* held;  // Team::held_bytes().

  MOEWAY_FN DispatchScratch(std::byte* memory, const layout::HeapLayout& heap) {
    lay_out(memory, heap.shape, heap.owners.max_local());
  }

  template <class Team>
  static int64_t bytes(const layout::Shape& shape) {
    DispatchScratch scratch;
    return scratch.lay_out(nullptr, shape, shape.experts.max_local()) + Team::held_bytes(shape.token());
  }

 private:
  DispatchScratch() = default;

  // Lays everything out; returns where `held` starts.
  MOEWAY_FN int64_t lay_out(std::byte* memory, const layout::Shape& shape, int64_t local) {
    int64_t offset = 0;
    const auto take = [&](auto** array, int64_t n) {
      *array = reinterpret_cast<std::remove_reference_t<decltype(*array)>>(memory + offset);
      offset += n * static_cast<int64_t>(sizeof(**array));
    };
    const int64_t packed = shape.rows == layout::Rows::kPacked ? local : 0;
    take(&first_row, packed);
    take(&padded_rows, packed);
    take(&rows, shape.experts.num_experts);
    take(&slots, shape.num_ranks());
    take(&num_rows, local);
    take(&num_arrived, local);
    take(&first_of, local * shape.num_ranks());
    take(&num_slots, shape.num_ranks());
    offset = layout::round_up(offset, sizeof(exec::Unit));
    held = memory + offset;
    return offset;
  }
};

}  // namespace moeway::kernels::direct
