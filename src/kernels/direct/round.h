// What the four phases of the direct protocol share. The protocol, its invariants and its memory order:
// docs/protocols/direct.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/team.h"
#include "layout/heap_layout.h"
#include "layout/workspace_layout.h"

namespace moeway::kernels::direct {

// A caller's matrix; strides in bytes, any of them.
struct MatrixView {
  std::byte* data;
  int64_t row_stride;
  int64_t column_stride;
  int64_t columns;
  int32_t element_bytes;

  MOEWAY_FN std::byte* row(int64_t i) const { return data + i * row_stride; }
  MOEWAY_FN std::byte* at(int64_t i, int64_t j) const { return row(i) + j * column_stride; }
};

// Rows of experts, each of contiguous elements: a caller's [L, capacity, H] or [rows, H] (expert_stride 0). Strides in
// bytes.
struct RowsView {
  std::byte* data;
  int64_t expert_stride;
  int64_t row_stride;

  MOEWAY_FN bool given() const { return data != nullptr; }
  MOEWAY_FN std::byte* row(int32_t local_expert, int64_t row) const {
    return data + local_expert * expert_stride + row * row_stride;
  }
};

// Copies row i of a matrix to contiguous memory.
template <class Team>
MOEWAY_FN void copy_row(const Team& team, std::byte* dst, const MatrixView& from, int64_t i) {
  if (from.column_stride == from.element_bytes) {
    team.copy(dst, from.row(i), from.columns * from.element_bytes);
    return;
  }
  team.lanes(from.columns * from.element_bytes,
             [&](int64_t byte) { dst[byte] = from.at(i, byte / from.element_bytes)[byte % from.element_bytes]; });
}

struct Round {
  layout::HeapLayout heap;
  layout::WorkspaceLayout workspace;
  std::byte* memory;  // The workspace.
  int32_t rank;
  // How many dispatches have been sent since the one that this launch belongs to. The epoch itself lives in the
  // workspace, since a replayed launch repeats its arguments.
  uint32_t lag;

  MOEWAY_FN const layout::Shape& shape() const { return heap.shape; }
  template <class T>
  MOEWAY_FN T* at(int64_t offset) const {
    return reinterpret_cast<T*>(memory + offset);
  }
  // The latest dispatch that was sent. Only this team writes its word while the launch runs.
  template <class Team>
  MOEWAY_FN uint64_t last_epoch(const Team& team) const {
    return team.once([&] { return *at<const uint64_t>(workspace.epoch(team.id())); });
  }
  template <class Team>
  MOEWAY_FN uint64_t epoch(const Team& team) const {
    return last_epoch(team) - lag;
  }
  template <class Team>
  MOEWAY_FN void set_last_epoch(const Team& team, uint64_t epoch) const {
    team.once([&] {
      for (int word = team.id(); word < layout::kMaxTeams; word += team.count())
        *at<uint64_t>(workspace.epoch(word)) = epoch;
    });
  }
  MOEWAY_FN layout::Counters* counters() const { return at<layout::Counters>(workspace.counters()); }
};

MOEWAY_FN int parity_of(uint64_t epoch) { return static_cast<int>(epoch % layout::kEpochs); }

// The share of a team: received tokens of all sources, counted through, are dealt to the teams in turn. Where team `id`
// starts among those of a source when `num_before` came before them.
MOEWAY_FN int64_t first_share(int64_t num_before, int id, int count) {
  const int64_t turn = num_before % count;
  return turn <= id ? id - turn : id - turn + count;
}

}  // namespace moeway::kernels::direct
