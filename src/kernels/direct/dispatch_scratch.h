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
  uint32_t* rows;      // [E]: routes to each expert before the next token.
  uint32_t* slots;     // [W]: tokens to each rank before it.
  uint32_t* own_rows;  // [E], [W]: the same of the team's own share; in the last team alone.
  uint32_t* own_slots;

  // From the counts of all sources on.
  uint32_t* num_rows;     // [L]: of each expert, as far as there is room.
  uint32_t* num_arrived;  // [L]: what all sources send for it.
  uint32_t* first_of;     // [W, L]: the first row of a source among the expert's.
  uint32_t* num_slots;    // [W]: tokens from each source.
  uint32_t* num_tokens;   // [W]: of each source's group; with replicas alone.
  int64_t* padded_rows;   // [L]: num_rows, rounded up; packed alone.
  int64_t* first_row;     // [L]: of each expert; packed alone.

  std::byte* held;  // Team::held_bytes().
  // Team::quantised_bytes(), where the shape quantises.
  template <class Team>
  MOEWAY_FN std::byte* quantised(const Team&, const layout::Shape& shape) const {
    return held + Team::held_bytes(shape.token());
  }

  MOEWAY_FN DispatchScratch(std::byte* memory, const layout::HeapLayout& heap) {
    lay_out(memory, heap.shape, heap.owners.max_local());
  }

  template <class Team>
  static int64_t bytes(const layout::Shape& shape) {
    DispatchScratch scratch;
    return scratch.lay_out(nullptr, shape, shape.experts.max_local()) + Team::held_bytes(shape.token()) +
           (shape.quantises() ? Team::quantised_bytes(shape.token()) : 0);
  }

 private:
  DispatchScratch() = default;

  // Lays everything out; returns where `held` starts.
  MOEWAY_FN int64_t lay_out(std::byte* memory, const layout::Shape& shape, int64_t local) {
    int64_t offset = 0;
    // As numbers: of no memory at all an address is none that may be moved.
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    const auto take = [&](auto** array, int64_t n) {
      *array = reinterpret_cast<std::remove_reference_t<decltype(*array)>>(begin + static_cast<uintptr_t>(offset));
      offset += n * static_cast<int64_t>(sizeof(**array));
    };
    const int64_t packed = shape.rows == layout::Rows::kPacked ? local : 0;
    take(&first_row, packed);
    take(&padded_rows, packed);
    take(&rows, shape.experts.num_experts);
    take(&slots, shape.num_ranks());
    take(&own_rows, shape.experts.num_experts);
    take(&own_slots, shape.num_ranks());
    take(&num_rows, local);
    take(&num_arrived, local);
    take(&first_of, local * shape.num_ranks());
    take(&num_slots, shape.num_ranks());
    take(&num_tokens, shape.replicated() ? shape.num_ranks() : 0);
    offset = layout::round_up(offset, sizeof(exec::Unit));
    held = reinterpret_cast<std::byte*>(begin + static_cast<uintptr_t>(offset));
    return offset;
  }
};

// Which tokens of its group may come from a source; token_major: whose rows are then its to fill or clear. All of them
// without replicas; else its share, and with the last member those behind the group's last token. After a barrier behind
// Counts::recv().
template <class Config>
MOEWAY_FN layout::TokenRange tokens_of(const Round& round, const DispatchScratch& scratch, int32_t src) {
  const layout::Shape& shape = round.shape();
  if (!unusual<Config>(shape.replicated())) return {0, shape.max_tokens};
  const layout::Replicas& replicas = round.heap.replicas;
  layout::TokenRange tokens = replicas.share(src, static_cast<int32_t>(scratch.num_tokens[src]));
  if (replicas.is_last(src)) tokens.end = shape.max_tokens;
  return tokens;
}

}  // namespace moeway::kernels::direct
