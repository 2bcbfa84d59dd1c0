// Element types of rows and sums, and the one way in which each is rounded: to nearest, ties to even. The bits are the same
// everywhere, but for those of a NaN, which stays one. The host rounds with integers, a GPU has instructions.
#pragma once

#include <math.h>

#include <cstdint>
#include <cstring>

#include "exec/compiler.h"

namespace moeway::exec {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

MOEWAY_FN uint32_t float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}
MOEWAY_FN float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// One rounding. Sums are defined with it, so that they do not depend on what a compiler contracts.
MOEWAY_FN float fused_multiply_add(float a, float b, float c) { return fmaf(a, b, c); }

MOEWAY_FN float to_float(float value) { return value; }

MOEWAY_FN float to_float(Bf16 value) { return float_from_bits(static_cast<uint32_t>(value.bits) << 16); }

MOEWAY_FN float to_float(F16 value) {
#if defined(__CUDA_ARCH__)
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  // Normal numbers only need another exponent bias; infinities and NaNs the largest exponent. A subnormal is its
  // integer times 2^-24.
  const uint32_t exponent_shift = magnitude >= 0x7c00u ? 224u << 23 : 112u << 23;
  const uint32_t normal = (magnitude << 13) + exponent_shift;
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return float_from_bits(sign | (magnitude < 0x0400u ? float_bits(subnormal) : normal));
#endif
}

template <class T>
MOEWAY_FN T from_float(float value);

template <>
MOEWAY_FN float from_float<float>(float value) {
  return value;
}

template <>
MOEWAY_FN Bf16 from_float<Bf16>(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return Bf16{bits};
#else
  const uint32_t bits = float_bits(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t nan = (bits >> 16) | 0x0040u;
  return Bf16{static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
#endif
}

// Too large becomes infinity.
template <>
MOEWAY_FN F16 from_float<F16>(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return F16{bits};
#else
  const uint32_t bits = float_bits(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // From 65520 on the nearest is infinity.
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // Normal: drop 13 bits and change the bias.
    half = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  } else {  // Subnormal: adding 0.5 puts the unit of the sum at 2^-24, so the addition itself rounds to nearest even.
    half = float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
  }
  return F16{static_cast<uint16_t>(sign | half)};
#endif
}

}  // namespace moeway::exec
