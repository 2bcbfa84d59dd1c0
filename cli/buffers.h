// The tensors of one rank in a checked run. Each is filled with poison (bytes of all ones: a NaN, a -1) wherever the
// library has not written, and has a guard behind it, so a stray write or a read of what holds nothing shows up.
#pragma once

#include <moeway/all_to_all.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cli/pattern.h"
#include "cli/routes.h"

namespace moeway::cli {

class GuardedBytes {
 public:
  static constexpr std::byte kPoison{0xff};

  GuardedBytes() : GuardedBytes(0) {}
  explicit GuardedBytes(int64_t bytes);
  std::byte* data() const { return bytes_.get(); }
  int64_t bytes() const { return num_bytes_; }
  void poison() const;
  void poison(int64_t offset, int64_t bytes) const;
  bool is_poison(int64_t offset, int64_t bytes) const;
  int64_t bytes_with_guard() const;
  // False if something was written behind the end.
  bool guard_intact() const;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(bytes_.get());
  }

 private:
  int64_t num_bytes_;
  std::unique_ptr<std::byte[]> bytes_;
};

struct Buffers {
  Buffers(const AllToAllConfig& config, const AllToAllSizes& sizes, const Pattern& pattern);

  // The rank's tokens of a round.
  void fill_input(const Pattern& pattern, const Batch& batch, int64_t round, int group);
  DispatchInput input(const Batch& batch);
  DispatchOutput output();
  Tensor row_tensor();                       // What combine_send is given.
  Tensor sum_tensor(int64_t num_tokens);     // What combine_recv writes.
  Tensor weight_tensor(const Batch& batch);  // For weights at combine.
  // A call has read its inputs when it returns: from then on they hold poison.
  void forget_input();
  void forget_rows();
  // Makes all outputs poison again.
  void poison_outputs();

  AllToAllConfig config;
  AllToAllSizes sizes;
  bool token_major;
  int64_t scales_bytes, out_row_bytes, sum_bytes;
  DType scales_dtype;
  int64_t given_row_bytes, given_scales_bytes;
  DType given_dtype;

  GuardedBytes in_x, in_scales, in_experts, in_weights;
  GuardedBytes x, scales, num_rows, first_row, row_source, topk_idx, topk_weights;
  GuardedBytes rows, sums;
  // Rows of x that the routing says are written in this round, and of `rows` that the experts have written.
  std::vector<uint8_t> x_written, rows_written;
};

// Bytes that Buffers takes: the command's own need beside the library's.
double buffers_bytes(const AllToAllConfig& config, const AllToAllSizes& sizes);

}  // namespace moeway::cli
