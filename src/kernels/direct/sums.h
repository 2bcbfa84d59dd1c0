// Sums of rows: a lane keeps its pieces of the sum in registers and goes through the rows in their order. The order and
// the one rounding per step are part of the interface (docs/protocols/direct.md, "Sums").
#pragma once

#include <cstdint>

#include "exec/team.h"

namespace moeway::kernels::direct {

// A lane's pieces of the sum of one slice, which starts from 0.
template <class Team>
struct Sum {
  float acc[Team::kPieces][Team::kElements] = {};
};

// A lane's pieces of a slice of a row of T.
template <class Team, class T>
struct Slice {
  typename Team::template Piece<T> piece[Team::kPieces];

  // sum += weight * this.
  MOEWAY_FN void add_to(const Team& team, int slice, int hidden, float weight, Sum<Team>* sum) const {
    team.pieces(slice, hidden, [&](int p, int, int num) { piece[p].add_to(sum->acc[p], weight, num); });
  }
  MOEWAY_FN void round(const Team& team, int slice, int hidden, const Sum<Team>& sum) {
    team.pieces(slice, hidden, [&](int p, int, int num) { piece[p].round(sum.acc[p], num); });
  }
  MOEWAY_FN void load(const Team& team, int slice, int hidden, const std::byte* row, bool whole) {
    const auto* elements = reinterpret_cast<const T*>(row);
    if (whole) {
      team.pieces(slice, hidden, [&](int p, int first, int num) { piece[p].load(elements + first, num); });
    } else {
      team.pieces(slice, hidden, [&](int p, int first, int num) { piece[p].load_elements(elements + first, num); });
    }
  }
  MOEWAY_FN void put(const Team& team, int slice, int hidden, std::byte* slot, bool self_validating) const {
    auto* elements = reinterpret_cast<T*>(slot);
    team.pieces(slice, hidden,
                [&](int p, int first, int num) { piece[p].put(elements + first, num, self_validating); });
  }
  MOEWAY_FN void store(const Team& team, int slice, int hidden, std::byte* to, bool whole) const {
    auto* elements = reinterpret_cast<T*>(to);
    if (whole) {
      team.pieces(slice, hidden, [&](int p, int first, int num) { piece[p].store(elements + first, num); });
    } else {
      team.pieces(slice, hidden, [&](int p, int first, int num) { piece[p].store_elements(elements + first, num); });
    }
  }
  // Looks into a self-validating slot; whether all of this lane's part has come.
  MOEWAY_FN bool take(const Team& team, int slice, int hidden, const std::byte* slot) {
    const auto* elements = reinterpret_cast<const T*>(slot);
    bool come = true;
    team.pieces(slice, hidden, [&](int p, int first, int num) {
      if (num > 0) come = piece[p].take(elements + first, num) && come;
    });
    return come;
  }
  MOEWAY_FN void put_back(const Team& team, int slice, int hidden, std::byte* slot) const {
    auto* elements = reinterpret_cast<T*>(slot);
    team.pieces(slice, hidden, [&](int, int first, int num) {
      if (num > 0) Team::template Piece<T>::put_back(elements + first, num);
    });
  }
};

// sum += weight(j) * row(j) for 0 <= j < n, in order.
template <class T, class Team, class Row, class Weight>
MOEWAY_FN void add_rows(const Team& team, int slice, int hidden, int32_t n, Row row, Weight weight, bool whole,
                        Sum<Team>* sum) {
  if (!whole) {
    MOEWAY_ROLL
    for (int32_t j = 0; j < n; ++j) {
      Slice<Team, T> one;
      one.load(team, slice, hidden, row(j), false);
      one.add_to(team, slice, hidden, weight(j), sum);
    }
    return;
  }
  typename Team::template Queue<T> queue(team);
  const auto ask = [&](int32_t j) {
    if (j < n)
      queue.ask(reinterpret_cast<const T*>(row(j)), slice, hidden);
    else
      queue.skip();
  };
  MOEWAY_ROLL
  for (int32_t j = 0; j < queue.kAhead; ++j) ask(j);
  MOEWAY_ROLL
  for (int32_t j = 0; j < n; ++j) {
    Slice<Team, T> one;
    queue.next(one.piece);
    one.add_to(team, slice, hidden, weight(j), sum);
    ask(j + queue.kAhead);
  }
}

}  // namespace moeway::kernels::direct
