// How a row of bf16 becomes fp8 e4m3 with a scale for each block of 128 elements, number by number: docs/quantisation.md. The bits
// are the same everywhere: a host works them out with integers, a GPU has instructions.
#pragma once

#include <cstdint>

#include "exec/compiler.h"
#include "exec/numeric.h"
#include "exec/unit.h"

namespace moeway::exec {

// What dispatch does to a token on its way, and how its scales are kept.
enum class Scaling : int32_t {
  kNone,             // It travels as the caller gave it.
  kFloat,            // Quantised: scales are float32, the largest element of the block divided by 448;
  kFloatPowerOfTwo,  // float32, that rounded up to a power of two;
  kUe8m0             // the same, as a byte.
};

inline constexpr int kScaleBlock = 128;  // Elements that share a scale.
inline constexpr float kE4m3Largest = 448.0f;
// The least that counts as a block's largest element, so that blocks of zeros and of subnormals have a scale like others.
inline constexpr float kLeastLargest = 1e-4f;

struct BlockScale {
  float factor;   // What the block's elements are multiplied by; NaN if one of them is no finite number.
  uint32_t bits;  // The scale: of a float, or the one byte of kUe8m0. Never all ones.
};

// `largest`: the largest of the block's elements without their signs, as the bits of a bf16.
MOEWAY_FN BlockScale block_scale(uint32_t largest, Scaling scaling) {
  constexpr uint32_t kOne = 127;  // The exponent of 1.
  const bool ue8m0 = scaling == Scaling::kUe8m0;
  if (largest >= 0x7f80u) return {float_from_bits(0x7fc00000u), ue8m0 ? kOne : kOne << 23};
  const float given = float_from_bits(largest << 16);
  const float most = given > kLeastLargest ? given : kLeastLargest;
  const uint32_t scale = float_bits(most * (1.0f / kE4m3Largest));
  if (scaling == Scaling::kFloat) return {kE4m3Largest / most, scale};
  const uint32_t exponent = (scale + 0x7fffffu) >> 23;  // Up, unless it is a power of two.
  return {float_from_bits((2 * kOne - exponent) << 23), ue8m0 ? exponent : exponent << 23};
}

// To nearest, ties to even; 448 where that is less; NaN is 0x7f.
MOEWAY_FN uint32_t to_e4m3(float value) {
  const uint32_t bits = float_bits(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  // Normal: drop 20 bits and change the bias. Subnormal: adding 2^14 puts the unit of the sum at 2^-9.
  const uint32_t normal = (magnitude - (120u << 23) + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  const uint32_t subnormal =
      float_bits(float_from_bits(magnitude < 0x3c800000u ? magnitude : 0) + 0x1p14f) - 0x46800000u;
  const uint32_t finite = magnitude < 0x3c800000u ? subnormal : magnitude < 0x43e00000u ? normal : 0x7eu;
  return magnitude > 0x7f800000u ? 0x7fu : sign | finite;
}

// Four of them, the first in the lowest byte.
MOEWAY_FN uint32_t to_e4m3(float a, float b, float c, float d) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  uint32_t word;
  asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;"
      " mov.b32 %0, {low, high}; }"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
#else
  return to_e4m3(a) | to_e4m3(b) << 8 | to_e4m3(c) << 16 | to_e4m3(d) << 24;
#endif
}

// Sixteen elements: two units of bf16 become one.
MOEWAY_FN Unit quantised(const Unit& first, const Unit& second, float factor) {
  const auto low = [&](uint32_t pair) { return float_from_bits(pair << 16) * factor; };
  const auto high = [&](uint32_t pair) { return float_from_bits(pair & 0xffff0000u) * factor; };
  const auto four = [&](uint32_t a, uint32_t b) { return to_e4m3(low(a), high(a), low(b), high(b)); };
  return {{four(first.word[0], first.word[1]), four(first.word[2], first.word[3]), four(second.word[0], second.word[1]),
           four(second.word[2], second.word[3])}};
}

}  // namespace moeway::exec
