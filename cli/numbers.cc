#include "cli/numbers.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace moeway::cli {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

std::array<float, 256> make_e4m3_table() {
  std::array<float, 256> table{};
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = (bits >> 3) & 15;
    const int mantissa = bits & 7;
    float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    // The only NaN of e4m3 has all bits set; there is no infinity.
    if ((bits & 0x7f) == 0x7f) magnitude = std::nanf("");
    table[static_cast<size_t>(bits)] = (bits & 0x80) != 0 ? -magnitude : magnitude;
  }
  return table;
}

const std::array<float, 256> kE4m3 = make_e4m3_table();

}  // namespace

float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

float f16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  // Read with float32's exponent range, the value is 2^112 too small; the product is exact, subnormals included.
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f));
}

float e4m3_to_float(uint8_t bits) { return kE4m3[bits]; }

float ue8m0_to_float(uint8_t bits) {
  if (bits == 255) return std::nanf("");
  return std::ldexp(1.0f, bits - 127);
}

uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // 65520 and more round to infinity.
  if (magnitude < 0x38800000u) {
    // Below f16's smallest normal number: adding 0.5 puts the unit in the last place of f16 at that of float32, so the
    // addition itself rounds to nearest even.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

void decode(DType dtype, const std::byte* from, int64_t n, float* to) {
  switch (dtype) {
    case kBf16:
      for (int64_t i = 0; i < n; ++i) to[i] = bf16_to_float(load<uint16_t>(from + 2 * i));
      break;
    case kF16:
      for (int64_t i = 0; i < n; ++i) to[i] = f16_to_float(load<uint16_t>(from + 2 * i));
      break;
    case kF32:
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
      break;
    default:
      for (int64_t i = 0; i < n; ++i) to[i] = e4m3_to_float(std::to_integer<uint8_t>(from[i]));
  }
}

void encode(DType dtype, const float* from, int64_t n, std::byte* to) {
  switch (dtype) {
    case kBf16:
      for (int64_t i = 0; i < n; ++i) store(to + 2 * i, float_to_bf16(from[i]));
      break;
    case kF16:
      for (int64_t i = 0; i < n; ++i) store(to + 2 * i, float_to_f16(from[i]));
      break;
    default:
      std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  }
}

void round_through(DType dtype, int64_t n, float* values) {
  if (dtype == kBf16) {
    for (int64_t i = 0; i < n; ++i) values[i] = bf16_to_float(float_to_bf16(values[i]));
  } else if (dtype == kF16) {
    for (int64_t i = 0; i < n; ++i) values[i] = f16_to_float(float_to_f16(values[i]));
  }
}

std::string element_text(DType dtype, const std::byte* element) {
  switch (dtype) {
    case kBf16:
      return fmt::format("{:g} (0x{:04x})", bf16_to_float(load<uint16_t>(element)), load<uint16_t>(element));
    case kF16:
      return fmt::format("{:g} (0x{:04x})", f16_to_float(load<uint16_t>(element)), load<uint16_t>(element));
    case kF32:
      return fmt::format("{:.9g} (0x{:08x})", load<float>(element), load<uint32_t>(element));
    case kF8E4M3:
      return fmt::format("{:g} (0x{:02x})", e4m3_to_float(load<uint8_t>(element)), load<uint8_t>(element));
    case kUe8m0:
      return fmt::format("{:g} (0x{:02x})", ue8m0_to_float(load<uint8_t>(element)), load<uint8_t>(element));
    case kI32:
      return fmt::format("{}", load<int32_t>(element));
    case kI64:
      return fmt::format("{}", load<int64_t>(element));
    case kBytes:
      break;
  }
  return fmt::format("0x{:02x}", load<uint8_t>(element));
}

}  // namespace moeway::cli
