#include "reference/numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace reference {
namespace {

// A binary format with a sign bit, `exponent_bits` and `mantissa_bits`; the lowest exponent holds the subnormals.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // The highest exponent holds infinity and NaN; else it holds numbers, and all ones is NaN.
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int min_exponent() const { return 1 - bias(); }
};

constexpr Format kFormatF16{5, 10, true};
constexpr Format kFormatF8E4M3{4, 3, false};

double largest(const Format& format) {
  const int top = (1 << format.exponent_bits) - 1 - format.bias();  // The highest exponent's value.
  if (format.has_infinity) return std::ldexp(2.0 - std::ldexp(1.0, -format.mantissa_bits), top - 1);
  return std::ldexp(2.0 - std::ldexp(2.0, -format.mantissa_bits), top);  // All ones in the mantissa is NaN.
}

// The distance of neighbours around a magnitude.
double grid(const Format& format, double magnitude) {
  int exponent = format.min_exponent();
  if (magnitude > 0) exponent = std::max(exponent, std::ilogb(magnitude));
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

uint32_t encode(const Format& format, float value) {
  const uint32_t sign = std::signbit(value) ? 1u << (format.exponent_bits + format.mantissa_bits) : 0u;
  const uint32_t top = (1u << (format.exponent_bits + format.mantissa_bits)) - 1;  // All ones but the sign.
  const uint32_t infinity = top & ~((1u << format.mantissa_bits) - 1);
  if (std::isnan(value)) return sign | top;
  const double magnitude = std::fabs(static_cast<double>(value));
  const double step = grid(format, magnitude);
  // A power of two divides without rounding; nearbyint rounds to nearest, ties to even.
  const double nearest = std::isinf(value) ? magnitude : std::nearbyint(magnitude / step) * step;
  if (nearest > largest(format)) return sign | (format.has_infinity ? infinity : top);
  // Neighbours in value are neighbours as whole numbers: count the steps from the binade's first value.
  const double final_step = grid(format, nearest);
  const auto steps = static_cast<uint32_t>(nearest / final_step);
  if (steps < (1u << format.mantissa_bits)) return sign | steps;  // Subnormal or zero.
  const int exponent = std::ilogb(nearest) + format.bias();
  return sign | ((static_cast<uint32_t>(exponent) << format.mantissa_bits) + (steps - (1u << format.mantissa_bits)));
}

float decode(const Format& format, uint32_t bits) {
  const uint32_t mantissa = bits & ((1u << format.mantissa_bits) - 1);
  const uint32_t exponent = (bits >> format.mantissa_bits) & ((1u << format.exponent_bits) - 1);
  const bool negative = ((bits >> (format.exponent_bits + format.mantissa_bits)) & 1u) != 0;
  const bool highest = exponent == (1u << format.exponent_bits) - 1;
  double magnitude = 0;
  if (format.has_infinity && highest) {
    magnitude = mantissa == 0 ? HUGE_VAL : std::nan("");
  } else if (!format.has_infinity && highest && mantissa == (1u << format.mantissa_bits) - 1) {
    magnitude = std::nan("");
  } else if (exponent == 0) {
    magnitude = std::ldexp(mantissa, format.min_exponent() - format.mantissa_bits);
  } else {
    magnitude = std::ldexp((1u << format.mantissa_bits) + mantissa,
                           static_cast<int>(exponent) - format.bias() - format.mantissa_bits);
  }
  return static_cast<float>(negative ? -magnitude : magnitude);
}

}  // namespace

int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
    case DType::kF16:
      return 2;
    case DType::kF32:
      return 4;
    case DType::kF8E4M3:
    case DType::kUe8m0:
    case DType::kBytes:
      return 1;
  }
  std::abort();
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF32:
      return "f32";
    case DType::kF8E4M3:
      return "f8_e4m3";
    case DType::kUe8m0:
      return "ue8m0";
    case DType::kBytes:
      return "bytes";
  }
  std::abort();
}

uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  // bf16 is the upper half of a float: round the lower half away, a tie towards an even upper half. A carry moves on
  // into the exponent, up to infinity, as it should.
  const uint32_t lower = bits & 0xffffu;
  const uint32_t upper = bits >> 16;
  const bool up = lower > 0x8000u || (lower == 0x8000u && (upper & 1u) != 0);
  return static_cast<uint16_t>(upper + (up ? 1u : 0u));
}

float float_from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t f16_from_float(float value) { return static_cast<uint16_t>(encode(kFormatF16, value)); }
float float_from_f16(uint16_t bits) { return decode(kFormatF16, bits); }
uint8_t f8_e4m3_from_float(float value) { return static_cast<uint8_t>(encode(kFormatF8E4M3, value)); }
float float_from_f8_e4m3(uint8_t bits) { return decode(kFormatF8E4M3, bits); }
float float_from_ue8m0(uint8_t bits) { return bits == 255 ? std::nanf("") : std::ldexp(1.0f, bits - 127); }

float load(DType dtype, const std::byte* at) {
  uint16_t half = 0;
  float single = 0;
  switch (dtype) {
    case DType::kBf16:
      std::memcpy(&half, at, 2);
      return float_from_bf16(half);
    case DType::kF16:
      std::memcpy(&half, at, 2);
      return float_from_f16(half);
    case DType::kF32:
      std::memcpy(&single, at, 4);
      return single;
    case DType::kF8E4M3:
      return float_from_f8_e4m3(static_cast<uint8_t>(*at));
    case DType::kUe8m0:
      return float_from_ue8m0(static_cast<uint8_t>(*at));
    case DType::kBytes:
      break;
  }
  std::abort();
}

void store(DType dtype, float value, std::byte* at) {
  uint16_t half = 0;
  switch (dtype) {
    case DType::kBf16:
      half = bf16_from_float(value);
      std::memcpy(at, &half, 2);
      return;
    case DType::kF16:
      half = f16_from_float(value);
      std::memcpy(at, &half, 2);
      return;
    case DType::kF32:
      std::memcpy(at, &value, 4);
      return;
    case DType::kF8E4M3:
      *at = static_cast<std::byte>(f8_e4m3_from_float(value));
      return;
    case DType::kUe8m0:
    case DType::kBytes:
      break;
  }
  std::abort();
}

float rounded(DType dtype, float value) {
  std::byte element[4];
  store(dtype, value, element);
  return load(dtype, element);
}

}  // namespace reference
