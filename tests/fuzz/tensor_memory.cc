#include "fuzz/tensor_memory.h"

#include <algorithm>

namespace moeway::fuzz {
namespace {

constexpr double kMostBytes = 1 << 18;

// Where the elements of a tensor lie, in elements from its address: exact where memory of that form can be had.
struct Extent {
  double first = 0, last = 0;
  bool any = true;  // It has elements, as far as anybody can tell.
};

Extent extent_of(const moeway_tensor& tensor) {
  Extent extent;
  if (tensor.ndim < 1 || tensor.ndim > 3) return {0, 0, false};
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] <= 0) extent.any = false;
    if (tensor.shape[i] <= 1) continue;
    const double reach = static_cast<double>(tensor.shape[i] - 1) * static_cast<double>(tensor.strides[i]);
    (reach < 0 ? extent.first : extent.last) += reach;
  }
  return extent;
}

}  // namespace

moeway_tensor TensorMemory::make(moeway_tensor right, Input& input) {
  moeway_tensor tensor = right;
  auto* const described = reinterpret_cast<uint8_t*>(&tensor) + sizeof(tensor.data);
  const Bytes change = input.piece();
  if (!change.empty()) {
    const size_t size = sizeof(tensor) - sizeof(tensor.data);
    const size_t offset = input.byte() % size;
    std::copy_n(change.begin(), std::min(change.size(), size - offset), described + offset);
  }
  const uint8_t address = input.byte();
  Extent extent = extent_of(tensor);
  int64_t element = std::max<int64_t>(moeway_dtype_bytes(tensor.dtype), 1);
  if (extent.any && (extent.last - extent.first + 1) * static_cast<double>(element) > kMostBytes) {
    constexpr double kNoAddressSpace = 0x1p60;
    if (std::max(-extent.first, extent.last) > kNoAddressSpace) {
      must_refuse_ = true;
      extent = {};
    } else {
      tensor = right;
      extent = extent_of(right);
      element = moeway_dtype_bytes(right.dtype);
    }
  }
  if (!extent.any) return tensor;
  const auto size = static_cast<size_t>(extent.last - extent.first + 1) * static_cast<size_t>(element);
  if (address == 1) {  // Null.
    tensor.data = nullptr;
    must_refuse_ = true;
    return tensor;
  }
  const size_t shift = address == 2 && element > 1 ? 1 : 0;  // No multiple of an element.
  must_refuse_ = must_refuse_ || shift != 0;
  blocks_.push_back({std::make_unique<uint8_t[]>(size + shift), size + shift});
  tensor.data = blocks_.back().bytes.get() + shift + static_cast<int64_t>(-extent.first) * element;
  return tensor;
}

void TensorMemory::fill_experts(const moeway_tensor& tensor, int32_t num_experts, Input& input) {
  if (blocks_.empty() || tensor.data == nullptr) return;
  const Block& block = blocks_.back();
  const Bytes any = input.piece();
  const bool whole = tensor.dtype == MOEWAY_I64 || tensor.dtype == MOEWAY_I32;
  if (!whole || input.byte() % 8 == 0) {
    for (size_t i = 0; i < block.size && !any.empty(); ++i) block.bytes[i] = any[i % any.size()];
    return;
  }
  const size_t width = static_cast<size_t>(moeway_dtype_bytes(tensor.dtype));
  for (size_t i = 0; (i + 1) * width <= block.size; ++i) {
    const int64_t expert = any.empty() ? -1 : any[i % any.size()] % (int64_t{num_experts} + 1) - 1;
    std::memcpy(&block.bytes[i * width], &expert, width);  // Little-endian: the low bytes come first.
  }
}

}  // namespace moeway::fuzz
