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
  MOEWAY_FN exec::Part part(int64_t i) const { return {row(i), columns * element_bytes, column_stride, element_bytes}; }
  // Whether every row consists of whole units at their natural addresses.
  bool whole_units() const {
    return part(0).whole_units() && row_stride % static_cast<int64_t>(sizeof(exec::Unit)) == 0;
  }
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
  // Whether every row of `bytes` bytes consists of whole units at their natural addresses.
  bool whole_units(int64_t bytes) const {
    constexpr int64_t kUnit = sizeof(exec::Unit);
    return exec::Part{data, bytes, 1, 1}.whole_units() && expert_stride % kUnit == 0 && row_stride % kUnit == 0;
  }
};

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
  // The ranks in the order in which this one turns to them, 0 <= step < W, from itself on: every rank starts with another.
  MOEWAY_FN int32_t source(int32_t step) const {
    const int32_t turn = rank + step;
    return turn < shape().num_ranks() ? turn : turn - shape().num_ranks();
  }
  // The latest dispatch that was sent. Only this team writes its word, as the last thing of a launch.
  template <class Team>
  MOEWAY_FN uint64_t last_epoch(const Team& team) const {
    return *at<const uint64_t>(workspace.epoch(team.id()));
  }
  template <class Team>
  MOEWAY_FN uint64_t epoch(const Team& team) const {
    return last_epoch(team) - lag;
  }
  // After a barrier behind last_epoch(). Words of teams that this launch does not have are shared out.
  template <class Team>
  MOEWAY_FN void set_last_epoch(const Team& team, uint64_t epoch) const {
    team.lanes(layout::kMaxTeams, [&](int32_t i) {
      const int32_t word = team.id() + i * team.count();
      if (word < layout::kMaxTeams) *at<uint64_t>(workspace.epoch(word)) = epoch;
    });
  }
  MOEWAY_FN layout::Counters* counters() const { return at<layout::Counters>(workspace.counters()); }
  MOEWAY_FN layout::PeerCounters* peer_counters(int32_t peer) const {
    return at<layout::PeerCounters>(workspace.peer_counters(peer));
  }
};

// `condition`, which never holds in a usual case. A GPU waits for every stretch of code that it comes to, and for every one that
// it leaps over: nearly all callers have kernels without what they do not need.
template <class Config>
MOEWAY_FN constexpr bool unusual(bool condition) {
  return !Config::kUsual && condition;
}

// The replica group of a rank (layout/replicas.h): without replicas the rank itself.
template <class Config>
MOEWAY_FN int32_t group_of(const Round& round, int32_t rank) {
  return unusual<Config>(round.shape().replicated()) ? round.heap.replicas.group(rank) : rank;
}
// f(member) for the ranks of a rank's group.
template <class Config, class F>
MOEWAY_FN void for_each_member(const Round& round, int32_t rank, F f) {
  if (!unusual<Config>(round.shape().replicated())) return f(rank);
  const int32_t first = round.heap.replicas.first_rank(rank);
  MOEWAY_ROLL
  for (int32_t member = first; member < first + round.shape().replicas; ++member) f(member);
}

MOEWAY_FN int parity_of(uint64_t epoch) { return static_cast<int>(epoch % layout::kEpochs); }

// A team's part of the tokens that this rank sends: consecutive ones, so that it counts the routes before them once and then
// knows every position by itself. The last team's, be it empty, ends with the last token.
struct Share {
  int64_t first;  // Of the tokens that this rank sends.
  int64_t begin, end;

  MOEWAY_FN Share(int id, int count, const layout::TokenRange& of) : first(of.begin) {
    const int64_t each = static_cast<int64_t>((static_cast<uint32_t>(of.size()) + static_cast<uint32_t>(count) - 1) /
                                              static_cast<uint32_t>(count));
    begin = of.begin + id * each < of.end ? of.begin + id * each : of.end;
    end = begin + each < of.end ? begin + each : of.end;
  }
};

// The share of a team: received tokens of all sources, counted through, are dealt to the teams in turn. Where team `id`
// starts among those of a source when `num_before` came before them.
MOEWAY_FN int64_t first_share(int64_t num_before, int id, int count) {
  if (num_before == 0) return id;  // Most often; a division is long.
  const int64_t turn =
      num_before >> 31 == 0 ? static_cast<uint32_t>(num_before) % static_cast<uint32_t>(count) : num_before % count;
  return turn <= id ? id - turn : id - turn + count;
}

}  // namespace moeway::kernels::direct
