// Conversions between float32 and the narrower types, from their definitions: round to nearest, ties to even, over the
// grid of representable values. Slow and plain on purpose; shares nothing with the library that it checks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reference {

enum class DType { kBf16, kF16, kF32, kF8E4M3, kUe8m0, kBytes };

// Bytes of one element.
int64_t dtype_bytes(DType dtype);
const char* dtype_name(DType dtype);

uint16_t bf16_from_float(float value);
float float_from_bf16(uint16_t bits);
uint16_t f16_from_float(float value);
float float_from_f16(uint16_t bits);
// The variant without infinities: largest value 448, NaN 0x7f and 0xff. What rounds to more than 448 becomes NaN.
uint8_t f8_e4m3_from_float(float value);
float float_from_f8_e4m3(uint8_t bits);
// Two to the power of bits - 127; 255 is NaN.
float float_from_ue8m0(uint8_t bits);

// One element of type bf16, f16, f32, f8_e4m3 or ue8m0 at `at`, which need not be aligned.
float load(DType dtype, const std::byte* at);
// Rounds once; not for ue8m0 and bytes.
void store(DType dtype, float value, std::byte* at);
// What a value becomes when it is stored and loaded again.
float rounded(DType dtype, float value);

}  // namespace reference
