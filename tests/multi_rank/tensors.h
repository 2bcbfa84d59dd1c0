// The caller's memory in a test: inputs seen through odd strides, and outputs of which every byte is known beforehand
// and checked afterwards.
#pragma once

#include <moeway/moeway.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "multi_rank/place.h"
#include "reference/random.h"

namespace moeway::multi_rank {

enum class Views { kDense, kStrided };

// A two-dimensional input. The memory ends where the last element does, so that AddressSanitizer sees a read past it.
class InputTensor {
 public:
  InputTensor() = default;
  // Copies `dense` (row after row) to where the strides, drawn with kStrided, say.
  InputTensor(DType dtype, int64_t rows, int64_t columns, const void* dense, Views views, reference::Random& random);

  const Tensor& tensor() const { return tensor_; }
  // Overwrites everything, as a caller may who reuses the memory.
  void scramble();

 private:
  Memory<std::byte> memory_;
  Tensor tensor_;
};

// An output of one to three dimensions, the last one contiguous; with kStrided the others are spread out and the start
// lies one to three elements off. All bytes, those between and around the rows too, are poison until they are written.
class OutputTensor {
 public:
  OutputTensor() = default;
  OutputTensor(DType dtype, const std::vector<int64_t>& dims, Views views, reference::Random& random);

  const Tensor& tensor() const { return tensor_; }
  // The first `n` of a two-dimensional tensor's rows.
  Tensor first_rows(int64_t n) const;
  // Row `i` counted over all dimensions but the last.
  std::byte* row(int64_t i) { return memory_.data() + row_offset(i); }
  const std::byte* row(int64_t i) const { return memory_.data() + row_offset(i); }
  size_t row_bytes() const { return row_bytes_; }

  // Forgets what was written and expected: everything is poison again.
  void poison();
  // From the next difference() on, this row must hold these row_bytes() bytes.
  void expect_row(int64_t i, const void* bytes);
  // Empty, or where the memory first differs from poison and expected rows.
  std::string difference() const;
  // Writes a row (for tensors that this side fills).
  void fill_row(int64_t i, const void* bytes);
  void scramble();

 private:
  size_t row_offset(int64_t i) const;

  Memory<std::byte> memory_;
  std::vector<std::byte> expected_;
  Tensor tensor_;
  size_t start_ = 0;  // Byte of element 0.
  size_t row_bytes_ = 0;
};

}  // namespace moeway::multi_rank
