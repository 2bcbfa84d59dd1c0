// Arithmetic on sizes that may not wrap: a value that left 64 bits stays marked as such until somebody looks.
#pragma once

#include <cstdint>

namespace moeway {

// A non-negative 64-bit size, or "too large". Sums and products of too large values are too large.
class CheckedSize {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a number.
  constexpr CheckedSize(int64_t value) : value_(value), ok_(value >= 0) {}

  constexpr bool ok() const { return ok_; }
  constexpr int64_t value() const { return value_; }  // Requires ok().

  friend constexpr CheckedSize operator+(CheckedSize a, CheckedSize b) {
    CheckedSize sum(0);
    sum.ok_ = !__builtin_add_overflow(a.value_, b.value_, &sum.value_) && a.ok_ && b.ok_;
    return sum;
  }
  friend constexpr CheckedSize operator*(CheckedSize a, CheckedSize b) {
    CheckedSize product(0);
    product.ok_ = !__builtin_mul_overflow(a.value_, b.value_, &product.value_) && a.ok_ && b.ok_;
    return product;
  }

 private:
  int64_t value_;
  bool ok_;
};

}  // namespace moeway
