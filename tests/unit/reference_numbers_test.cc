// The reference's conversions: every narrow value, and every place between two of them where rounding turns.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "reference/numbers.h"
#include "reference/random.h"

namespace reference {
namespace {

__extension__ typedef _Float16 CompilerF16;

bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

TEST(ReferenceNumbers, F16DecodesEveryValueAsTheCompilerDoes) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto narrow = static_cast<uint16_t>(bits);
    ASSERT_TRUE(same(float_from_f16(narrow), static_cast<float>(std::bit_cast<CompilerF16>(narrow)))) << bits;
  }
}

// Around every f16 value and every midpoint: the float itself and its neighbours.
TEST(ReferenceNumbers, F16RoundsAsTheCompilerDoes) {
  const auto check = [](float value) {
    const auto expected = static_cast<float>(static_cast<CompilerF16>(value));
    ASSERT_TRUE(same(float_from_f16(f16_from_float(value)), expected)) << value;
  };
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = float_from_f16(static_cast<uint16_t>(bits));
    const float high = bits + 1 == 0x7c00 ? 65536.0f : float_from_f16(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    for (const float value : {low, middle}) {
      for (const float sign : {1.0f, -1.0f}) {
        check(sign * value);
        check(sign * std::nextafterf(value, HUGE_VALF));
        check(sign * std::nextafterf(value, 0.0f));
      }
    }
  }
  for (const float value : {HUGE_VALF, -HUGE_VALF, std::nanf(""), 1e-30f, 1e30f}) check(value);
}

// bf16 by another way than the reference's: to the nearest of the two neighbours, by distance.
TEST(ReferenceNumbers, Bf16RoundsToTheNearestAndTiesToEven) {
  for (uint32_t upper = 0; upper < 0x7f80; ++upper) {
    const auto low = static_cast<uint16_t>(upper);
    const auto high = static_cast<uint16_t>(upper + 1);
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = std::bit_cast<float>((upper << 16) | lower);
      const uint16_t nearest = lower < 0x8000u ? low : lower > 0x8000u ? high : (low % 2 == 0 ? low : high);
      ASSERT_EQ(bf16_from_float(value), nearest) << value;
      ASSERT_EQ(bf16_from_float(-value), nearest | 0x8000u) << value;
    }
  }
  EXPECT_EQ(bf16_from_float(HUGE_VALF), 0x7f80);
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::nanf("")))));
  // A NaN whose bits are all in the lower half must not become infinity.
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::bit_cast<float>(0x7f800001u)))));
}

TEST(ReferenceNumbers, F8DecodesTheValuesOfTheFormatsTable) {
  EXPECT_EQ(float_from_f8_e4m3(0x00), 0.0f);
  EXPECT_EQ(float_from_f8_e4m3(0x01), 0x1p-9f);    // Smallest subnormal.
  EXPECT_EQ(float_from_f8_e4m3(0x07), 0x1.cp-7f);  // Largest subnormal.
  EXPECT_EQ(float_from_f8_e4m3(0x08), 0x1p-6f);    // Smallest normal.
  EXPECT_EQ(float_from_f8_e4m3(0x38), 1.0f);
  EXPECT_EQ(float_from_f8_e4m3(0x7e), 448.0f);  // Largest.
  EXPECT_EQ(float_from_f8_e4m3(0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(float_from_f8_e4m3(0x7f)));
  EXPECT_TRUE(std::isnan(float_from_f8_e4m3(0xff)));
  EXPECT_TRUE(std::signbit(float_from_f8_e4m3(0x80)));
}

TEST(ReferenceNumbers, F8RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7e; ++bits) {
    const float low = float_from_f8_e4m3(static_cast<uint8_t>(bits));
    const float high = float_from_f8_e4m3(static_cast<uint8_t>(bits + 1));
    ASSERT_LT(low, high);
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(f8_e4m3_from_float(low), bits);
    ASSERT_EQ(f8_e4m3_from_float(-low), bits | 0x80u);
    ASSERT_EQ(f8_e4m3_from_float(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(f8_e4m3_from_float(std::nextafterf(middle, 0.0f)), bits);
    ASSERT_EQ(f8_e4m3_from_float(std::nextafterf(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(f8_e4m3_from_float(464.0f), 0x7e);  // Half-way to the 480 that does not exist: to even, which is 448.
  EXPECT_EQ(f8_e4m3_from_float(465.0f), 0x7f);
  EXPECT_EQ(f8_e4m3_from_float(-HUGE_VALF), 0xff);
  EXPECT_EQ(f8_e4m3_from_float(std::nanf("")) & 0x7f, 0x7f);
}

TEST(ReferenceNumbers, Ue8m0IsAPowerOfTwo) {
  EXPECT_EQ(float_from_ue8m0(0), 0x1p-127f);
  EXPECT_EQ(float_from_ue8m0(127), 1.0f);
  EXPECT_EQ(float_from_ue8m0(254), 0x1p127f);
  EXPECT_TRUE(std::isnan(float_from_ue8m0(255)));
}

TEST(ReferenceNumbers, StoredAndLoadedAgainIsRoundedOnce) {
  Random random(5);
  for (int i = 0; i < 1000; ++i) {
    const float value =
        std::ldexp(static_cast<float>(random.fraction()) - 0.5f, static_cast<int>(random.between(-8, 8)));
    for (const DType dtype : {DType::kBf16, DType::kF16, DType::kF32, DType::kF8E4M3}) {
      const float once = rounded(dtype, value);
      ASSERT_EQ(rounded(dtype, once), once) << dtype_name(dtype) << " " << value;
    }
    ASSERT_EQ(rounded(DType::kF32, value), value);
  }
}

}  // namespace
}  // namespace reference
