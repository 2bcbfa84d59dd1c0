// The reference's words in the library's.
#pragma once

#include <moeway/moeway.h>

#include <cstdlib>

#include "reference/shape.h"

namespace moeway::multi_rank {

inline DType to_moeway(reference::DType dtype) {
  switch (dtype) {
    case reference::DType::kBf16:
      return kBf16;
    case reference::DType::kF16:
      return kF16;
    case reference::DType::kF32:
      return kF32;
    case reference::DType::kF8E4M3:
      return kF8E4M3;
    case reference::DType::kUe8m0:
      return kUe8m0;
    case reference::DType::kBytes:
      return kBytes;
  }
  std::abort();
}

inline Scales to_moeway(reference::Scales scales) {
  switch (scales) {
    case reference::Scales::kNone:
      return kScalesNone;
    case reference::Scales::kF32:
      return kScalesF32;
    case reference::Scales::kUe8m0:
      return kScalesUe8m0;
    case reference::Scales::kBytes:
      return kScalesBytes;
  }
  std::abort();
}

inline Quantise to_moeway(reference::Quantise quantise) {
  switch (quantise) {
    case reference::Quantise::kNone:
      return kQuantiseNone;
    case reference::Quantise::kLargest:
      return kQuantiseLargest;
    case reference::Quantise::kPowerOfTwo:
      return kQuantisePowerOfTwo;
  }
  std::abort();
}

inline Layout to_moeway(reference::Layout layout) {
  switch (layout) {
    case reference::Layout::kExpertPadded:
      return kExpertPadded;
    case reference::Layout::kExpertPacked:
      return kExpertPacked;
    case reference::Layout::kTokenMajor:
      return kTokenMajor;
  }
  std::abort();
}

inline Weights to_moeway(reference::Weights weights) {
  return weights == reference::Weights::kAtDispatch ? kWeightsAtDispatch : kWeightsAtCombine;
}

}  // namespace moeway::multi_rank
