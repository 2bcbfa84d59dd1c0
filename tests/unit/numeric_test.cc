// Element types: every 16-bit pattern, and every float that lies where rounding decides.
#include "exec/numeric.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/numbers.h"

namespace moeway::exec {
namespace {

TEST(Numeric, EveryBf16AndF16BecomesItsFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float f16 = to_float(F16{half}), bf16 = to_float(Bf16{half});
    const float want_f16 = reference::float_from_f16(half), want_bf16 = reference::float_from_bf16(half);
    ASSERT_EQ(std::isnan(f16), std::isnan(want_f16)) << bits;
    ASSERT_EQ(std::isnan(bf16), std::isnan(want_bf16)) << bits;
    if (!std::isnan(f16)) {
      ASSERT_EQ(float_bits(f16), float_bits(want_f16)) << bits;
    }
    if (!std::isnan(bf16)) {
      ASSERT_EQ(float_bits(bf16), float_bits(want_bf16)) << bits;
    }
  }
}

// All exponents and signs, with mantissas on, below and above every halfway point.
TEST(Numeric, FloatsRoundToNearestEven) {
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = float_from_bits(high << 16 | low);
      const uint16_t f16 = from_float<F16>(value).bits, bf16 = from_float<Bf16>(value).bits;
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(to_float(F16{f16})) && std::isnan(to_float(Bf16{bf16}))) << high << ' ' << low;
        continue;
      }
      ASSERT_EQ(f16, reference::f16_from_float(value)) << high << ' ' << low;
      ASSERT_EQ(bf16, reference::bf16_from_float(value)) << high << ' ' << low;
    }
  }
}

TEST(Numeric, AFusedMultiplyAddRoundsOnce) {
  const float a = 1.0f + 0x1p-23f;
  EXPECT_EQ(fused_multiply_add(a, a, -1.0f), 0x1p-22f + 0x1p-46f);  // Rounding the product first gives 2^-22.
}

}  // namespace
}  // namespace moeway::exec
