// What dispatch makes of bf16 elements where it quantises (docs/quantisation.md), worked out from the definition: in double precision
// where that is exact, and rounded where the document says so.
#pragma once

#include <cstddef>

#include "reference/shape.h"

namespace reference {

// From H elements of bf16 to H of e4m3 and their scales, of shape.quantise and shape.scales.
void quantise(const Shape& shape, const std::byte* row, std::byte* elements, std::byte* scales);

}  // namespace reference
