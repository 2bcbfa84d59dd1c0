// Checks of a caller's tensors, and the views that kernels get of them.
#pragma once

#include <moeway/c_api.h>
#include <moeway/status.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/direct/round.h"

namespace moeway::core {

// What a dimension of a tensor must be.
struct Dim {
  enum class Is { kExactly, kAtLeast } is;
  int64_t value;
  static Dim exactly(int64_t value) { return {Is::kExactly, value}; }
  static Dim at_least(int64_t value) { return {Is::kAtLeast, value}; }
};

// Whether kernels only read the tensor (any strides), or write it (no element twice, the last dimension contiguous).
enum class Access { kRead, kReadRows, kWrite, kScatter };

// Checks type, dimensions, strides and pointer; `name` is the argument's, as the caller knows it.
//   kScatter: written, one dimension, any stride but 0.
//   kRead: any strides. kReadRows: contiguous last dimension. kWrite: contiguous last dimension, and no two elements at
//   one place.
Status check_tensor(const char* name, const moeway_tensor& tensor, moeway_dtype dtype, std::initializer_list<Dim> dims,
                    Access access);

// An argument, as the caller knows it.
struct NamedTensor {
  const char* name;
  const moeway_tensor* tensor;
};

// Every tensor that is given lies on the device.
Status check_devices(std::initializer_list<NamedTensor> tensors, moeway_device_type type, int32_t index);

// The tensor was not given (ndim 0), as it must not be for this object.
Status check_absent(const char* name, const moeway_tensor& tensor, const char* why);

// Views of tensors that have been checked.
kernels::direct::MatrixView matrix_view(const moeway_tensor& tensor);
kernels::direct::RowsView rows_view(const moeway_tensor& tensor);
// The distance in elements from one element of a one-dimensional tensor to the next.
int64_t stride_of(const moeway_tensor& tensor);

}  // namespace moeway::core
