// Takes values off the front of a target's bytes; when they are used up, every value is 0.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "fuzz/target.h"

namespace moeway::fuzz {

class Input {
 public:
  explicit Input(Bytes bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  Bytes take(size_t count) {
    const Bytes taken = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  Bytes rest() { return take(rest_.size()); }
  // Overwrites `size` bytes at `to`, as far as there are any.
  void fill(void* to, size_t size) {
    const Bytes from = take(size);
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  // A plain value of any bits.
  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    fill(&value, sizeof(value));
    return value;
  }
  uint8_t byte() { return value<uint8_t>(); }
  // 0 to most.
  int below_or_at(int most) { return byte() % (most + 1); }
  // As many bytes as the next one says.
  Bytes piece() { return take(byte()); }

 private:
  Bytes rest_;
};

}  // namespace moeway::fuzz
