// Views of the caller's memory, and the types of its elements.
#pragma once

#include <moeway/c_api.h>

#include <initializer_list>

namespace moeway {

using DType = ::moeway_dtype;
inline constexpr DType kBf16 = MOEWAY_BF16;
inline constexpr DType kF16 = MOEWAY_F16;
inline constexpr DType kF32 = MOEWAY_F32;
inline constexpr DType kF8E4M3 = MOEWAY_F8_E4M3;
inline constexpr DType kUe8m0 = MOEWAY_UE8M0;
inline constexpr DType kBytes = MOEWAY_BYTES;
inline constexpr DType kI32 = MOEWAY_I32;
inline constexpr DType kI64 = MOEWAY_I64;

// See moeway_tensor. A default Tensor (ndim 0) stands for "not given".
struct Tensor : moeway_tensor {
  Tensor() : moeway_tensor{} {}
  explicit Tensor(const moeway_tensor& tensor) : moeway_tensor(tensor) {}
  // A dense CPU tensor of one to three dimensions, the last one contiguous.
  Tensor(void* memory, DType type, std::initializer_list<int64_t> dims) : moeway_tensor{} {
    data = memory;
    dtype = type;
    // More than three are counted but not kept: the call that gets the tensor refuses it.
    for (const int64_t n : dims) {
      if (ndim < 3) shape[ndim] = n;
      ++ndim;
    }
    int64_t stride = 1;
    for (int i = (ndim < 3 ? ndim : 3) - 1; i >= 0; --i) {
      strides[i] = stride;
      stride *= shape[i];
    }
  }
  // The same memory with other strides, in elements.
  Tensor with_strides(std::initializer_list<int64_t> elements) const {
    Tensor view = *this;
    int i = 0;
    for (const int64_t n : elements) {
      if (i < 3) view.strides[i++] = n;
    }
    return view;
  }
};

}  // namespace moeway
