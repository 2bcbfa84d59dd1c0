// Which rank owns which expert: the first E mod W ranks own ceil(E / W) consecutive experts, the others floor(E / W).
#pragma once

#include <cstdint>

#include "exec/compiler.h"

namespace moeway::layout {

struct Experts {
  int32_t num_experts;  // E >= 1
  int32_t num_ranks;    // W >= 1

  MOEWAY_FN int32_t num_large() const { return num_experts % num_ranks; }  // Ranks with one expert more.
  MOEWAY_FN int32_t small_count() const { return num_experts / num_ranks; }
  MOEWAY_FN int32_t max_local() const { return small_count() + (num_large() > 0 ? 1 : 0); }

  MOEWAY_FN int32_t count(int32_t rank) const { return small_count() + (rank < num_large() ? 1 : 0); }
  MOEWAY_FN int32_t first(int32_t rank) const {
    return rank * small_count() + (rank < num_large() ? rank : num_large());
  }
  // Requires 0 <= expert < num_experts.
  MOEWAY_FN int32_t owner(int32_t expert) const {
    const int64_t large_count = int64_t{small_count()} + 1;  // A lone rank may have all that int32 counts.
    const int64_t in_large = num_large() * large_count;
    return static_cast<int32_t>(expert < in_large ? expert / large_count
                                                  : num_large() + (expert - in_large) / small_count());
  }
};

// Division by a number that stays the same, in 32 bits.
struct Divisor {
  uint32_t divisor;
  uint32_t reciprocal;  // 2^32 / divisor, rounded down; of 1 the largest number.

  Divisor() = default;
  explicit Divisor(uint32_t d)
      : divisor(d), reciprocal(d == 1 ? ~uint32_t{0} : static_cast<uint32_t>((uint64_t{1} << 32) / d)) {}
  // Exact for n < 2^31: the product is at most one too small.
  MOEWAY_FN uint32_t divide(uint32_t n) const {
    const auto quotient = static_cast<uint32_t>(uint64_t{n} * reciprocal >> 32);
    return n - quotient * divisor >= divisor ? quotient + 1 : quotient;
  }
};

// The same without a division, for kernels. Made on the host.
class Owners {
 public:
  Owners() = default;
  explicit Owners(const Experts& experts)
      : num_large_(static_cast<uint32_t>(experts.num_large())),
        in_large_(num_large_ * (static_cast<uint32_t>(experts.small_count()) + 1)),
        large_(static_cast<uint32_t>(experts.small_count()) + 1),
        small_(experts.small_count() > 0 ? static_cast<uint32_t>(experts.small_count()) : 1) {}

  // Requires 0 <= expert < num_experts.
  MOEWAY_FN int32_t of(int32_t expert) const {
    // Both at once and then one of them: a GPU's lanes stay together.
    const auto e = static_cast<uint32_t>(expert);
    const uint32_t in_large = large_.divide(e), in_small = num_large_ + small_.divide(e - in_large_);
    const uint32_t which = e < in_large_ ? ~uint32_t{0} : 0;
    return static_cast<int32_t>((in_large & which) | (in_small & ~which));
  }
  MOEWAY_FN int32_t max_local() const { return static_cast<int32_t>(large_.divisor - (num_large_ == 0 ? 1 : 0)); }
  MOEWAY_FN int32_t count(int32_t rank) const {
    return static_cast<int32_t>(large_.divisor - (static_cast<uint32_t>(rank) < num_large_ ? 0 : 1));
  }
  // The first expert of a rank.
  MOEWAY_FN int32_t first(int32_t rank) const {
    const auto r = static_cast<uint32_t>(rank);
    return static_cast<int32_t>(r * (large_.divisor - 1) + (r < num_large_ ? r : num_large_));
  }

 private:
  uint32_t num_large_, in_large_;
  Divisor large_, small_;
};

}  // namespace moeway::layout
