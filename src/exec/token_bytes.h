// Where the bytes of a token lie: its row, then its scales. On the wire and in registers they are units of 16 bytes; those
// of the row come first, and either part's last unit may be padded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/compiler.h"
#include "exec/unit.h"

namespace moeway::exec {

MOEWAY_FN int units_of(int64_t bytes) { return static_cast<int>((bytes + 15) / 16); }

// One part: `bytes` bytes in elements that may lie apart.
struct Part {
  std::byte* data;
  int64_t bytes;
  int64_t step;  // Bytes from one element to the next.
  int32_t element_bytes;

  MOEWAY_FN bool contiguous() const { return step == element_bytes; }
  // Whether it consists of whole units at their natural addresses.
  MOEWAY_FN bool whole_units() const {
    return contiguous() && (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(bytes)) % sizeof(Unit) == 0;
  }
  MOEWAY_FN int num_units() const { return units_of(bytes); }
  MOEWAY_FN std::byte* at(int64_t byte) const {
    return contiguous() ? data + byte : data + byte / element_bytes * step + byte % element_bytes;
  }
};

// How much of each there is: in a slot the scales start at the next unit after the row.
struct TokenFormat {
  int64_t row_bytes;
  int64_t scales_bytes;

  MOEWAY_FN int row_units() const { return units_of(row_bytes); }
  MOEWAY_FN int num_units() const { return row_units() + units_of(scales_bytes); }
  MOEWAY_FN int64_t scales_offset() const { return int64_t{16} * row_units(); }
};

struct TokenBytes {
  Part row;
  Part scales;

  MOEWAY_FN int num_units() const { return row.num_units() + scales.num_units(); }
  // Requires that both parts consist of whole units.
  MOEWAY_FN Unit* unit(int i) const {
    const int in_row = row.num_units();
    return i < in_row ? reinterpret_cast<Unit*>(row.data) + i : reinterpret_cast<Unit*>(scales.data) + (i - in_row);
  }

  // The part that unit *i belongs to; *i becomes its number there.
  MOEWAY_FN const Part& part_of(int* i) const {
    const int in_row = row.num_units();
    if (*i < in_row) return row;
    *i -= in_row;
    return scales;
  }
};

// Unit `i` byte by byte: the slow way that always works.
MOEWAY_RARE Unit gather_unit(const TokenBytes* from, int i) {
  const Part& part = from->part_of(&i);
  Unit unit{};
  auto* to = reinterpret_cast<std::byte*>(&unit);
  for (int64_t byte = int64_t{16} * i; byte < part.bytes && byte < int64_t{16} * i + 16; ++byte)
    to[byte % 16] = *part.at(byte);
  return unit;
}
MOEWAY_RARE void scatter_unit(const TokenBytes* to, int i, Unit unit) {
  const Part& part = to->part_of(&i);
  const auto* from = reinterpret_cast<const std::byte*>(&unit);
  for (int64_t byte = int64_t{16} * i; byte < part.bytes && byte < int64_t{16} * i + 16; ++byte)
    *part.at(byte) = from[byte % 16];
}

}  // namespace moeway::exec
