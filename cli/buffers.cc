#include "cli/buffers.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace moeway::cli {
namespace {

constexpr int64_t kGuardBytes = 256;
constexpr std::byte kGuard{0xa5};

bool all_are(const std::byte* from, int64_t bytes, std::byte value) {
  // Every byte equals the one before it, and the first is as wanted; memcmp does this at the speed of memory.
  return bytes == 0 || (from[0] == value && std::memcmp(from, from + 1, static_cast<size_t>(bytes - 1)) == 0);
}

}  // namespace

GuardedBytes::GuardedBytes(int64_t bytes)
    : num_bytes_(bytes), bytes_(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes + kGuardBytes))) {
  poison();
  std::fill_n(bytes_.get() + bytes, kGuardBytes, kGuard);
}

void GuardedBytes::poison() const { poison(0, num_bytes_); }

void GuardedBytes::poison(int64_t offset, int64_t bytes) const { std::fill_n(bytes_.get() + offset, bytes, kPoison); }

bool GuardedBytes::is_poison(int64_t offset, int64_t bytes) const {
  return all_are(bytes_.get() + offset, bytes, kPoison);
}

int64_t GuardedBytes::bytes_with_guard() const { return num_bytes_ + kGuardBytes; }

bool GuardedBytes::guard_intact() const { return all_are(bytes_.get() + num_bytes_, kGuardBytes, kGuard); }

Buffers::Buffers(const AllToAllConfig& c, const AllToAllSizes& s, const Pattern& pattern)
    : config(c),
      sizes(s),
      token_major(c.layout == kTokenMajor),
      scales_bytes(pattern.scales_bytes()),
      out_row_bytes(c.hidden * moeway_dtype_bytes(c.row_dtype)),
      sum_bytes(c.hidden * moeway_dtype_bytes(c.output_dtype)),
      scales_dtype(pattern.scales_dtype()),
      given_row_bytes(pattern.given_row_bytes()),
      given_scales_bytes(pattern.given_scales_bytes()),
      given_dtype(pattern.given_dtype()),
      in_x(c.max_tokens * given_row_bytes),
      in_scales(c.max_tokens * given_scales_bytes),
      in_experts(c.max_tokens * c.topk * 4),
      in_weights(c.max_tokens * c.topk * 4),
      x(s.max_rows * s.row_bytes),
      scales(s.max_rows * scales_bytes),
      num_rows(s.num_local_experts * 4),
      first_row(token_major ? 0 : s.num_local_experts * 8),
      row_source(token_major ? 0 : s.max_rows * 12),
      topk_idx(token_major ? s.max_rows * c.topk * 4 : 0),
      topk_weights(token_major ? s.max_rows * c.topk * 4 : 0),
      rows(s.max_rows * out_row_bytes),
      sums(c.max_tokens * sum_bytes),
      x_written(static_cast<size_t>(s.max_rows)),
      rows_written(static_cast<size_t>(s.max_rows)) {}

void Buffers::fill_input(const Pattern& pattern, const Batch& batch, int64_t round, int group) {
  for (int64_t t = 0; t < batch.num_tokens; ++t) {
    pattern.fill_given_row(round, group, t, in_x.data() + t * given_row_bytes);
    if (given_scales_bytes > 0) pattern.fill_scales(round, group, t, in_scales.data() + t * scales_bytes);
  }
  std::copy(batch.experts.begin(), batch.experts.end(), in_experts.as<int32_t>());
  std::copy(batch.weights.begin(), batch.weights.end(), in_weights.as<float>());
}

DispatchInput Buffers::input(const Batch& batch) {
  DispatchInput input;
  const int64_t elements = given_row_bytes / moeway_dtype_bytes(given_dtype);
  input.x = Tensor(in_x.data(), given_dtype, {batch.num_tokens, elements});
  if (given_scales_bytes > 0)
    input.scales = Tensor(in_scales.data(), scales_dtype, {batch.num_tokens, sizes.num_scales});
  input.topk_idx = Tensor(in_experts.data(), kI32, {batch.num_tokens, config.topk});
  if (config.weights == kWeightsAtDispatch) input.topk_weights = weight_tensor(batch);
  return input;
}

Tensor Buffers::weight_tensor(const Batch& batch) {
  return Tensor(in_weights.data(), kF32, {batch.num_tokens, config.topk});
}

DispatchOutput Buffers::output() {
  DispatchOutput output;
  const int64_t elements = sizes.row_bytes / moeway_dtype_bytes(config.dispatch_dtype);
  const int64_t local = sizes.num_local_experts;
  const auto shaped = [&](const GuardedBytes& bytes, DType dtype, int64_t last) {
    if (config.layout == kExpertPadded) return Tensor(bytes.data(), dtype, {local, sizes.expert_capacity, last});
    return Tensor(bytes.data(), dtype, {sizes.max_rows, last});
  };
  output.x = shaped(x, config.dispatch_dtype, elements);
  if (scales_bytes > 0) output.scales = shaped(scales, scales_dtype, sizes.num_scales);
  output.num_rows = Tensor(num_rows.data(), kI32, {local});
  if (token_major) {
    output.topk_idx = Tensor(topk_idx.data(), kI32, {sizes.max_rows, config.topk});
    output.topk_weights = Tensor(topk_weights.data(), kF32, {sizes.max_rows, config.topk});
  } else {
    output.first_row = Tensor(first_row.data(), kI64, {local});
    output.row_source = shaped(row_source, kI32, 3);
  }
  return output;
}

Tensor Buffers::row_tensor() {
  if (config.layout == kExpertPadded)
    return Tensor(rows.data(), config.row_dtype, {sizes.num_local_experts, sizes.expert_capacity, config.hidden});
  return Tensor(rows.data(), config.row_dtype, {sizes.max_rows, config.hidden});
}

Tensor Buffers::sum_tensor(int64_t num_tokens) {
  return Tensor(sums.data(), config.output_dtype, {num_tokens, config.hidden});
}

void Buffers::forget_input() {
  in_x.poison();
  in_scales.poison();
  std::fill_n(in_experts.as<int32_t>(), in_experts.bytes() / 4, std::numeric_limits<int32_t>::max());
  if (config.weights == kWeightsAtDispatch) in_weights.poison();
}

void Buffers::forget_rows() {
  for (int64_t row = 0; row < sizes.max_rows; ++row)
    if (rows_written[static_cast<size_t>(row)] != 0) rows.poison(row * out_row_bytes, out_row_bytes);
  std::fill(rows_written.begin(), rows_written.end(), uint8_t{0});
}

void Buffers::poison_outputs() {
  for (int64_t row = 0; row < sizes.max_rows; ++row) {
    if (x_written[static_cast<size_t>(row)] == 0) continue;
    x.poison(row * sizes.row_bytes, sizes.row_bytes);
    scales.poison(row * scales_bytes, scales_bytes);
    if (!token_major) row_source.poison(row * 12, 12);
  }
  std::fill(x_written.begin(), x_written.end(), uint8_t{0});
  for (const GuardedBytes* small : {&num_rows, &first_row, &topk_idx, &topk_weights, &sums}) small->poison();
}

double buffers_bytes(const AllToAllConfig& config, const AllToAllSizes& sizes) {
  const double scales_bytes = static_cast<double>(sizes.num_scales) * (config.scales == kScalesF32 ? 4 : 1);
  const double in = static_cast<double>(sizes.row_bytes) + scales_bytes;
  const double hidden = static_cast<double>(config.hidden);
  const double given = config.quantise == kQuantiseNone ? in : 2 * hidden;
  const double out = hidden * static_cast<double>(moeway_dtype_bytes(config.row_dtype));
  const double sum = hidden * static_cast<double>(moeway_dtype_bytes(config.output_dtype));
  const double provenance = config.layout == kTokenMajor ? 8.0 * config.topk : 12.0;
  return static_cast<double>(sizes.max_rows) * (in + out + provenance + 2) +
         static_cast<double>(config.max_tokens) * (given + sum);
}

}  // namespace moeway::cli
