// Every form that tokens, rows and sums can have, for tests that go through them all.
#pragma once

#include "reference/shape.h"

namespace moeway::multi_rank {

struct TokenForm {
  reference::DType dtype;
  reference::Scales scales;
  int64_t token_bytes;
  int64_t scale_bytes;
  reference::Quantise quantise = reference::Quantise::kNone;

  void apply(reference::Shape& shape) const {
    shape.dispatch_dtype = dtype;
    shape.scales = scales;
    shape.token_bytes = token_bytes;
    shape.scale_bytes = scale_bytes;
    shape.quantise = quantise;
  }
};
inline constexpr TokenForm kTokenForms[] = {
    {reference::DType::kBf16, reference::Scales::kNone, 0, 0},
    {reference::DType::kF16, reference::Scales::kNone, 0, 0},
    {reference::DType::kF32, reference::Scales::kNone, 0, 0},
    {reference::DType::kF8E4M3, reference::Scales::kNone, 0, 0},
    {reference::DType::kF8E4M3, reference::Scales::kF32, 0, 0},
    {reference::DType::kF8E4M3, reference::Scales::kUe8m0, 0, 0},
    {reference::DType::kBytes, reference::Scales::kNone, 21, 0},
    {reference::DType::kBytes, reference::Scales::kBytes, 40, 7},
    {reference::DType::kF8E4M3, reference::Scales::kF32, 0, 0, reference::Quantise::kLargest},
    {reference::DType::kF8E4M3, reference::Scales::kUe8m0, 0, 0, reference::Quantise::kPowerOfTwo}};

inline constexpr reference::DType kSumTypes[] = {reference::DType::kBf16, reference::DType::kF16,
                                                 reference::DType::kF32};

// Layouts with the place where weights come in; token_major has only one.
struct LayoutForm {
  reference::Layout layout;
  reference::Weights weights;
  int64_t alignment;

  void apply(reference::Shape& shape) const {
    shape.layout = layout;
    shape.weights = weights;
    shape.alignment = alignment;
  }
};
inline constexpr LayoutForm kLayoutForms[] = {{reference::Layout::kExpertPadded, reference::Weights::kAtDispatch, 1},
                                              {reference::Layout::kExpertPadded, reference::Weights::kAtCombine, 1},
                                              {reference::Layout::kExpertPacked, reference::Weights::kAtDispatch, 8},
                                              {reference::Layout::kExpertPacked, reference::Weights::kAtCombine, 1},
                                              {reference::Layout::kTokenMajor, reference::Weights::kAtDispatch, 1}};

inline constexpr reference::Values kComparedValues[] = {reference::Values::kExact, reference::Values::kArbitrary};

}  // namespace moeway::multi_rank
