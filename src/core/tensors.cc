#include "core/tensors.h"

#include <algorithm>
#include <string>

#include "base/format.h"

namespace moeway::core {
namespace {

std::string shape_of(const moeway_tensor& tensor) {
  std::string text = "[";
  for (int i = 0; i < std::min(tensor.ndim, 3); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", tensor.shape[i]);
  return text + "]";
}

std::string show(std::initializer_list<Dim> dims) {
  std::string text = "[";
  for (const Dim& dim : dims) {
    text += fmt::format("{}{}{}", text.size() == 1 ? "" : ", ", dim.is == Dim::Is::kAtLeast ? ">= " : "", dim.value);
  }
  return text + "]";
}

constexpr int64_t kMostReach = int64_t{1} << 56;  // elements

// Contiguous last dimension; and for outputs, every dimension steps over what the next one spans.
Status check_strides(const char* name, const moeway_tensor& tensor, Access access) {
  const int last = tensor.ndim - 1;
  for (int i = 0; i <= last; ++i) {
    int64_t reach = 0;  // Bytes from the first to the last element along the dimension; far below what addresses hold.
    if (tensor.shape[i] <= 1) continue;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) || reach > kMostReach ||
        reach < -kMostReach) {
      return invalid_argument("{}.strides[{}] is {} with shape {}, expected elements within an address space", name, i,
                              tensor.strides[i], shape_of(tensor));
    }
    if (access == Access::kScatter && tensor.strides[i] == 0) {
      return invalid_argument("{}.strides[{}] is 0, expected another stride: elements of an output must not overlap",
                              name, i);
    }
  }
  if (access == Access::kScatter) return {};
  if (access != Access::kRead && tensor.shape[last] > 1 && tensor.strides[last] != 1) {
    return invalid_argument("{}.strides[{}] is {}, expected 1: rows must be contiguous", name, last,
                            tensor.strides[last]);
  }
  if (access != Access::kWrite) return {};
  int64_t span = tensor.shape[last] > 1 ? tensor.shape[last] : 1;
  for (int i = last - 1; i >= 0; --i) {
    if (tensor.shape[i] <= 1) continue;
    if (tensor.strides[i] < span) {
      return invalid_argument("{}.strides[{}] is {}, expected at least {}: rows of an output must not overlap", name, i,
                              tensor.strides[i], span);
    }
    span += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return {};
}

int64_t stride_bytes(const moeway_tensor& tensor, int dim) {
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return 0;  // Without elements strides may be anything.
  }
  return tensor.shape[dim] > 1 ? tensor.strides[dim] * moeway_dtype_bytes(tensor.dtype) : 0;
}

}  // namespace

Status check_tensor(const char* name, const moeway_tensor& tensor, moeway_dtype dtype, std::initializer_list<Dim> dims,
                    Access access) {
  if (tensor.ndim != static_cast<int32_t>(dims.size())) {
    return invalid_argument("{}.ndim is {}, expected {}: {}", name, tensor.ndim, dims.size(), show(dims));
  }
  if (tensor.dtype != dtype) {
    return invalid_argument("{}.dtype is {}, expected {}", name, moeway_dtype_name(tensor.dtype),
                            moeway_dtype_name(dtype));
  }
  bool empty = false, fits = true;
  int i = 0;
  for (const Dim& dim : dims) {
    const int64_t size = tensor.shape[i++];
    fits = fits && (dim.is == Dim::Is::kExactly ? size == dim.value : size >= dim.value);
    empty = empty || size == 0;
  }
  if (!fits) return invalid_argument("{}.shape is {}, expected {}", name, shape_of(tensor), show(dims));
  if (empty) return {};
  if (tensor.data == nullptr) return invalid_argument("{}.data is null with shape {}", name, shape_of(tensor));
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  const auto element = static_cast<uintptr_t>(moeway_dtype_bytes(dtype));
  if (address % element != 0) {
    return invalid_argument("{}.data is {:#x}, expected a multiple of its element's {} bytes", name, address, element);
  }
  return check_strides(name, tensor, access);
}

Status check_devices(std::initializer_list<NamedTensor> tensors, moeway_device_type type, int32_t index) {
  for (const NamedTensor& named : tensors) {
    const moeway_tensor& tensor = *named.tensor;
    if (tensor.ndim == 0) continue;
    if (tensor.device_type == type && (type == MOEWAY_CPU || tensor.device_index == index)) continue;
    return invalid_argument("{} is on device type {} (index {}), expected {} as the communicator's options say",
                            named.name, static_cast<int>(tensor.device_type), tensor.device_index,
                            type == MOEWAY_CPU ? "CPU" : fmt::format("CUDA (1) index {}", index));
  }
  return {};
}

Status check_absent(const char* name, const moeway_tensor& tensor, const char* why) {
  if (tensor.ndim == 0) return {};
  return invalid_argument("{} is given with shape {}, expected none (ndim 0): {}", name, shape_of(tensor), why);
}

kernels::direct::MatrixView matrix_view(const moeway_tensor& tensor) {
  if (tensor.ndim == 0) return {};
  const auto element = static_cast<int32_t>(moeway_dtype_bytes(tensor.dtype));
  // One column has no stride of its own; its elements are contiguous.
  const int64_t column_stride = tensor.shape[1] > 1 ? stride_bytes(tensor, 1) : element;
  return {static_cast<std::byte*>(tensor.data), stride_bytes(tensor, 0), column_stride, tensor.shape[1], element};
}

kernels::direct::RowsView rows_view(const moeway_tensor& tensor) {
  if (tensor.ndim == 0) return {};
  auto* data = static_cast<std::byte*>(tensor.data);
  if (tensor.ndim == 2) return {data, 0, stride_bytes(tensor, 0)};
  return {data, stride_bytes(tensor, 0), stride_bytes(tensor, 1)};
}

int64_t stride_of(const moeway_tensor& tensor) { return tensor.shape[0] > 1 ? tensor.strides[0] : 1; }

}  // namespace moeway::core
