#include "reference/quantise.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reference {
namespace {

struct BlockScale {
  float scale, factor;
};

BlockScale scale_of(const Shape& shape, const std::vector<float>& block) {
  float largest = 1e-4f;
  for (const float element : block) {
    if (!std::isfinite(element)) return {1.0f, std::nanf("")};
    largest = std::max(largest, std::fabs(element));
  }
  const float inverse = static_cast<float>(1.0 / 448.0);
  // Products of two floats are exact in double, so that this rounds once.
  const auto scale = static_cast<float>(static_cast<double>(largest) * static_cast<double>(inverse));
  if (shape.quantise == Quantise::kLargest) return {scale, 448.0f / largest};
  int exponent = 0;  // scale = fraction * 2^exponent, 1/2 <= fraction < 1.
  const float fraction = std::frexp(scale, &exponent);
  if (fraction == 0.5f) --exponent;
  return {std::ldexp(1.0f, exponent), std::ldexp(1.0f, -exponent)};
}

uint8_t saturated(float value) {
  if (std::isnan(value)) return 0x7f;
  return f8_e4m3_from_float(std::clamp(value, -448.0f, 448.0f));
}

}  // namespace

void quantise(const Shape& shape, const std::byte* row, std::byte* elements, std::byte* scales) {
  for (int64_t first = 0, number = 0; first < shape.hidden; first += 128, ++number) {
    std::vector<float> block;
    for (int64_t i = first; i < std::min(first + 128, shape.hidden); ++i)
      block.push_back(load(DType::kBf16, row + 2 * i));
    const BlockScale scale = scale_of(shape, block);
    for (size_t i = 0; i < block.size(); ++i)
      elements[first + static_cast<int64_t>(i)] = static_cast<std::byte>(saturated(block[i] * scale.factor));
    if (shape.scales == Scales::kUe8m0) {
      scales[number] = static_cast<std::byte>(std::ilogb(scale.scale) + 127);
    } else {
      store(DType::kF32, scale.scale, scales + 4 * number);
    }
  }
}

}  // namespace reference
