// The number formats that a token can be made of, written down once more: the check must not share code with what it
// checks.
#pragma once

#include <moeway/tensor.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace moeway::cli {

float bf16_to_float(uint16_t bits);
float f16_to_float(uint16_t bits);
float e4m3_to_float(uint8_t bits);
float ue8m0_to_float(uint8_t bits);

// Round to nearest, ties to even; too large becomes infinity, NaN stays NaN.
uint16_t float_to_bf16(float value);
uint16_t float_to_f16(float value);

// `n` elements of bf16, f16, f32 or e4m3. Nothing else can be decoded.
void decode(DType dtype, const std::byte* from, int64_t n, float* to);
// `n` elements of bf16, f16 or f32. Nothing else can be encoded.
void encode(DType dtype, const float* from, int64_t n, std::byte* to);
// In place: what a value is after a round trip through bf16, f16 or f32.
void round_through(DType dtype, int64_t n, float* values);

// An element as people read it: its value, and its bits where the value alone is not enough: "1.5 (0x3fc0)".
std::string element_text(DType dtype, const std::byte* element);

}  // namespace moeway::cli
