// The numbers of quantisation (docs/quantisation.md), one by one.
#include "exec/quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/numbers.h"

namespace moeway::exec {
namespace {

constexpr uint32_t kInfinity = 0x7f80;  // As bf16.

uint32_t saturated(float value) { return reference::f8_e4m3_from_float(std::clamp(value, -448.0f, 448.0f)); }

TEST(Quantise, ElementsRoundToNearestEvenAndSaturate) {
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const auto value = std::bit_cast<float>(high << 16 | low);
      if (std::isnan(value)) {
        ASSERT_EQ(to_e4m3(value), 0x7fu);
      } else {
        ASSERT_EQ(to_e4m3(value), saturated(value)) << value;
      }
    }
  }
  EXPECT_EQ(to_e4m3(464.0f), 0x7eu);  // The tie between 448 and the NaN behind it.
  EXPECT_EQ(to_e4m3(1.0f, -2.0f, 0.0f, 448.0f), 0x7e00c038u);
}

TEST(Quantise, AScaleIsTheLargestElementDividedBy448) {
  for (uint32_t largest = 0; largest < kInfinity; ++largest) {
    const float most = std::max(std::bit_cast<float>(largest << 16), 1e-4f);
    const BlockScale scale = block_scale(largest, Scaling::kFloat);
    ASSERT_EQ(std::bit_cast<float>(scale.bits), most * static_cast<float>(1.0 / 448.0));
    ASSERT_EQ(scale.factor, 448.0f / most);
    // The largest element becomes the largest that e4m3 has, but for what the floor takes.
    if (most > 1e-4f) {
      ASSERT_EQ(to_e4m3(most * scale.factor), 0x7eu) << most;
    }
  }
}

TEST(Quantise, PowersOfTwoAreTheNextFromThereOn) {
  for (uint32_t largest = 0; largest < kInfinity; ++largest) {
    const double most = std::max(std::bit_cast<float>(largest << 16), 1e-4f);
    const BlockScale byte = block_scale(largest, Scaling::kUe8m0);
    const BlockScale number = block_scale(largest, Scaling::kFloatPowerOfTwo);
    const double scale = std::bit_cast<float>(number.bits);
    ASSERT_EQ(reference::float_from_ue8m0(static_cast<uint8_t>(byte.bits)), std::bit_cast<float>(number.bits));
    ASSERT_EQ(byte.factor, number.factor);
    ASSERT_EQ(scale * static_cast<double>(number.factor), 1.0);
    ASSERT_TRUE(448 * scale >= most && 448 * scale < 2 * most) << most;
  }
}

// All ones stand for "has not come" in slots that tell by themselves.
TEST(Quantise, NoScaleAndNoElementIsAllOnes) {
  for (uint32_t largest = 0; largest < 0x8000; ++largest) {
    for (const Scaling scaling : {Scaling::kFloat, Scaling::kFloatPowerOfTwo}) {
      ASSERT_NE(block_scale(largest, scaling).bits, 0xffffffffu);
    }
    ASSERT_LT(block_scale(largest, Scaling::kUe8m0).bits, 0xffu);
  }
  for (uint32_t high = 0; high < 0x10000; ++high) ASSERT_NE(to_e4m3(std::bit_cast<float>(high << 16)), 0xffu);
}

TEST(Quantise, ABlockWithAnInfinityOrANaNIsNaNsOfScaleOne) {
  for (const uint32_t largest : {kInfinity, kInfinity + 1, 0x7fffu}) {
    EXPECT_EQ(block_scale(largest, Scaling::kFloat).bits, std::bit_cast<uint32_t>(1.0f));
    EXPECT_EQ(block_scale(largest, Scaling::kFloatPowerOfTwo).bits, std::bit_cast<uint32_t>(1.0f));
    EXPECT_EQ(block_scale(largest, Scaling::kUe8m0).bits, 127u);
    EXPECT_EQ(to_e4m3(0.0f * block_scale(largest, Scaling::kFloat).factor), 0x7fu);
  }
}

}  // namespace
}  // namespace moeway::exec
