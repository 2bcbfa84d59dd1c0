#include "multi_rank/tensors.h"

#include <algorithm>
#include <cstring>

namespace moeway::multi_rank {
namespace {

constexpr std::byte kPoison{0xff};    // NaN in every floating-point type, -1 in every whole one.
constexpr std::byte kCanary{0xa5};    // Around an output.
constexpr std::byte kScramble{0x5a};  // Over memory that the library has no business with any more.
constexpr size_t kMargin = 64;

}  // namespace

InputTensor::InputTensor(DType dtype, int64_t rows, int64_t columns, const void* dense, Views views,
                         reference::Random& random) {
  tensor_ = place::here(Tensor(nullptr, dtype, {rows, columns}));
  int64_t shift = 0;
  if (views == Views::kStrided) {
    shift = random.between(0, 3);
    const int64_t step = random.chance(60) ? 1 : random.between(2, 3);
    tensor_ = tensor_.with_strides({columns * step + random.between(0, 5), step});
    if (random.chance(15)) tensor_ = tensor_.with_strides({1, rows + random.between(0, 2)});  // Transposed.
  }
  const auto width = static_cast<size_t>(moeway_dtype_bytes(dtype));
  const bool empty = rows == 0 || columns == 0;
  const int64_t last = empty ? -1 : (rows - 1) * tensor_.strides[0] + (columns - 1) * tensor_.strides[1];
  memory_.assign(static_cast<size_t>(shift + last + 1) * width, kScramble);
  // Without elements the pointer may be anything: null, or the middle of something.
  tensor_.data = empty && random.chance(50) ? nullptr : memory_.data() + static_cast<size_t>(shift) * width;
  const auto* from = static_cast<const std::byte*>(dense);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t at = shift + i * tensor_.strides[0] + j * tensor_.strides[1];
      std::memcpy(memory_.data() + static_cast<size_t>(at) * width, from, width);
      from += width;
    }
  }
}

void InputTensor::scramble() { std::fill(memory_.begin(), memory_.end(), kScramble); }

OutputTensor::OutputTensor(DType dtype, const std::vector<int64_t>& dims, Views views, reference::Random& random) {
  tensor_ = place::here(tensor_);
  tensor_.dtype = dtype;
  tensor_.ndim = static_cast<int32_t>(dims.size());
  const auto width = static_cast<size_t>(moeway_dtype_bytes(dtype));
  const bool strided = views == Views::kStrided;
  int64_t stride = 1;
  for (int32_t i = tensor_.ndim - 1; i >= 0; --i) {
    tensor_.shape[i] = dims[static_cast<size_t>(i)];
    tensor_.strides[i] = stride;
    stride = stride * tensor_.shape[i] + (strided && tensor_.ndim > 1 ? random.between(0, 5) : 0);
  }
  const int64_t shift = strided ? random.between(0, 3) : 0;
  start_ = kMargin + static_cast<size_t>(shift) * width;
  row_bytes_ = static_cast<size_t>(dims.back()) * width;
  memory_.resize(start_ + static_cast<size_t>(stride) * width + kMargin);
  tensor_.data = memory_.data() + start_;
  poison();
}

Tensor OutputTensor::first_rows(int64_t n) const {
  Tensor view = tensor_;
  view.shape[0] = n;
  if (n == 0) view.data = nullptr;
  return view;
}

size_t OutputTensor::row_offset(int64_t i) const {
  int64_t at = 0;
  for (int32_t d = tensor_.ndim - 2; d >= 0; --d) {
    at += i % tensor_.shape[d] * tensor_.strides[d];
    i /= tensor_.shape[d];
  }
  return start_ + static_cast<size_t>(at * moeway_dtype_bytes(tensor_.dtype));
}

void OutputTensor::poison() {
  std::fill(memory_.begin(), memory_.end(), kPoison);
  std::fill(memory_.begin(), memory_.begin() + kMargin, kCanary);
  std::fill(memory_.end() - kMargin, memory_.end(), kCanary);
  expected_.assign(memory_.begin(), memory_.end());
}

void OutputTensor::expect_row(int64_t i, const void* bytes) {
  if (row_bytes_ > 0) std::memcpy(expected_.data() + row_offset(i), bytes, row_bytes_);
}

std::string OutputTensor::difference() const {
  if (std::equal(memory_.begin(), memory_.end(), expected_.begin())) return "";
  const auto [found, wanted] = std::mismatch(memory_.begin(), memory_.end(), expected_.begin());
  const auto at = found - memory_.begin() - static_cast<std::ptrdiff_t>(start_);
  int64_t element = at / moeway_dtype_bytes(tensor_.dtype);
  std::string place;
  for (int32_t d = 0; d < tensor_.ndim && element >= 0; ++d) {
    const int64_t stride = std::max<int64_t>(tensor_.strides[d], 1);
    place += (d > 0 ? ", " : "") + std::to_string(element / stride);
    element %= stride;
  }
  const auto hex = [](std::byte byte) {
    static const char* const kDigits = "0123456789abcdef";
    const auto value = static_cast<unsigned>(byte);
    return std::string{kDigits[value / 16], kDigits[value % 16]};
  };
  return "byte " + std::to_string(at) + " (element " + place + ") is " + hex(*found) + ", expected " + hex(*wanted);
}

void OutputTensor::fill_row(int64_t i, const void* bytes) {
  if (row_bytes_ > 0) std::memcpy(row(i), bytes, row_bytes_);
}

void OutputTensor::scramble() { std::fill(memory_.begin() + kMargin, memory_.end() - kMargin, kScramble); }

}  // namespace moeway::multi_rank
