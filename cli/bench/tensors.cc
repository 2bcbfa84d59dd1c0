#include "cli/bench/tensors.h"

#include <algorithm>
#include <utility>

namespace moeway::cli {
namespace {

AllToAllConfig row_config(const AllToAllConfig& config) {
  AllToAllConfig rows = config;
  rows.dispatch_dtype = config.row_dtype;
  rows.scales = kScalesNone;
  rows.quantise = kQuantiseNone;
  return rows;
}

AllToAllSizes row_sizes(const AllToAllConfig& config) {
  AllToAllSizes sizes{};
  sizes.row_bytes = config.hidden * moeway_dtype_bytes(config.row_dtype);
  return sizes;
}

int64_t bytes_of_scales(const AllToAllConfig& config, const AllToAllSizes& sizes) {
  return sizes.num_scales * (config.scales == kScalesF32 ? 4 : 1);
}

}  // namespace

ExpertRows::ExpertRows(uint64_t seed, const AllToAllConfig& config)
    : pattern_(seed + 1, row_config(config), row_sizes(config)) {}

BenchTensors::BenchTensors(const Series& series, const AllToAllConfig& config, const AllToAllSizes& sizes, Place& place)
    : series_(series),
      config_(config),
      sizes_(sizes),
      place_(place),
      token_major_(config.layout == kTokenMajor),
      scales_bytes_(bytes_of_scales(config, sizes)),
      scales_dtype_(config.scales == kScalesF32     ? kF32
                    : config.scales == kScalesUe8m0 ? kUe8m0
                                                    : kBytes),
      sets_(static_cast<size_t>(series.sets)) {}

Status BenchTensors::allocate(const Pattern& pattern) {
  Status status;
  const auto take = [&](std::byte*& memory, int64_t bytes) {
    if (!status.ok() || bytes == 0) return;
    const Result<std::byte*> taken = place_.allocate(bytes);
    if (taken.ok())
      memory = taken.value();
    else
      status = taken.status();
  };
  const int64_t tokens = config_.max_tokens, routes = tokens * config_.topk;
  for (Set& set : sets_) {
    take(set.x, tokens * pattern.given_row_bytes());
    take(set.scales, tokens * pattern.given_scales_bytes());
    take(set.experts, routes * 4);
    take(set.weights, routes * 4);
  }
  take(at_.x, sizes_.max_rows * sizes_.row_bytes);
  take(at_.scales, sizes_.max_rows * scales_bytes_);
  take(at_.num_rows, sizes_.num_local_experts * 4);
  if (series_.row_source) take(at_.row_source, sizes_.max_rows * 12);
  if (token_major_) {
    take(at_.topk_idx, sizes_.max_rows * config_.topk * 4);
    take(at_.topk_weights, sizes_.max_rows * config_.topk * 4);
  }
  take(at_.rows, sizes_.max_rows * config_.hidden * moeway_dtype_bytes(config_.row_dtype));
  take(at_.y, y_bytes());
  return status;
}

Status BenchTensors::write_set(const Pattern& pattern, const Batch& batch, int set, int rank) {
  const int64_t tokens = config_.max_tokens;
  const int64_t row_bytes = pattern.given_row_bytes();
  std::vector<std::byte> x(static_cast<size_t>(tokens * row_bytes));
  std::vector<std::byte> scales(static_cast<size_t>(tokens * pattern.given_scales_bytes()));
  for (int64_t t = 0; t < tokens; ++t) {
    pattern.fill_given_row(set, rank, t, x.data() + t * row_bytes);
    if (!scales.empty()) pattern.fill_scales(set, rank, t, scales.data() + t * scales_bytes_);
  }
  const auto routes_bytes = static_cast<int64_t>(batch.experts.size() * sizeof(int32_t));
  const Set& to = sets_[static_cast<size_t>(set)];
  if (Status s = place_.copy_in(to.x, x.data(), std::ssize(x)); !s.ok()) return s;
  if (!scales.empty())
    if (Status s = place_.copy_in(to.scales, scales.data(), std::ssize(scales)); !s.ok()) return s;
  if (Status s = place_.copy_in(to.experts, reinterpret_cast<const std::byte*>(batch.experts.data()), routes_bytes);
      !s.ok())
    return s;
  return place_.copy_in(to.weights, reinterpret_cast<const std::byte*>(batch.weights.data()), routes_bytes);
}

// Every row that holds something in any set, and a row of NaNs behind each run, which must not be read.
Status BenchTensors::write_rows(const Routes& routes, const ExpertRows& expert_rows, int rank) {
  const int64_t row_bytes = expert_rows.row_bytes();
  std::vector<int64_t> end(
      token_major_ || config_.layout == kExpertPacked ? 1 : static_cast<size_t>(sizes_.num_local_experts));
  for (int set = 0; set < series_.sets; ++set) {
    const Placement placement(config_, sizes_.expert_capacity, routes, set, series_.num_ranks);
    const auto first = static_cast<size_t>(token_major_ ? 0 : sizes_.first_local_expert);
    const auto count = static_cast<size_t>(token_major_ ? series_.num_ranks : sizes_.num_local_experts);
    for (size_t i = 0; i < count; ++i) {
      const RowRange& run = placement.runs()[first + i];
      int64_t& of_run = end[end.size() == 1 ? 0 : i];
      of_run = std::max(of_run, end.size() == 1 ? run.first + run.count : run.count);
    }
  }
  std::vector<std::byte> made;
  for (size_t i = 0; i < end.size(); ++i) {
    const int64_t first = static_cast<int64_t>(i) * sizes_.expert_capacity;
    const int64_t filled = std::min(end[i], sizes_.max_rows - first);
    made.resize(static_cast<size_t>(filled * row_bytes));
    for (int64_t row = 0; row < filled; ++row) expert_rows.fill(rank, first + row, made.data() + row * row_bytes);
    if (Status s = place_.copy_in(at_.rows + first * row_bytes, made.data(), std::ssize(made)); !s.ok()) return s;
    const int64_t behind = first + filled;
    if (behind < sizes_.max_rows)
      if (Status s = place_.fill(at_.rows + behind * row_bytes, 0xff, row_bytes); !s.ok()) return s;
  }
  return place_.synchronize();
}

Status BenchTensors::prepare(const Routes& routes, const Pattern& pattern, const ExpertRows& expert_rows, int rank) {
  if (Status s = allocate(pattern); !s.ok()) return s;
  for (int set = 0; set < series_.sets; ++set)
    if (Status s = write_set(pattern, routes.batch(set, rank), set, rank); !s.ok()) return s;
  return write_rows(routes, expert_rows, rank);
}

DispatchInput BenchTensors::input(int set) const {
  const Set& from = sets_[static_cast<size_t>(set)];
  const int64_t tokens = config_.max_tokens;
  DispatchInput input;
  const bool quantises = config_.quantise != kQuantiseNone;
  const int64_t elements = sizes_.row_bytes / moeway_dtype_bytes(config_.dispatch_dtype);
  input.x = place_.here(Tensor(from.x, quantises ? kBf16 : config_.dispatch_dtype, {tokens, elements}));
  if (from.scales != nullptr)
    input.scales = place_.here(Tensor(from.scales, scales_dtype_, {tokens, sizes_.num_scales}));
  input.topk_idx = place_.here(Tensor(from.experts, kI32, {tokens, config_.topk}));
  if (config_.weights == kWeightsAtDispatch) input.topk_weights = weights(set);
  return input;
}

Tensor BenchTensors::weights(int set) const {
  return place_.here(
      Tensor(sets_[static_cast<size_t>(set)].weights, kF32, {config_.max_tokens, int64_t{config_.topk}}));
}

Tensor BenchTensors::shaped(std::byte* data, DType dtype, int64_t last) const {
  if (config_.layout == kExpertPadded)
    return place_.here(Tensor(data, dtype, {sizes_.num_local_experts, sizes_.expert_capacity, last}));
  return place_.here(Tensor(data, dtype, {sizes_.max_rows, last}));
}

DispatchOutput BenchTensors::output() const {
  DispatchOutput output;
  output.x = shaped(at_.x, config_.dispatch_dtype, sizes_.row_bytes / moeway_dtype_bytes(config_.dispatch_dtype));
  if (scales_bytes_ > 0) output.scales = shaped(at_.scales, scales_dtype_, sizes_.num_scales);
  output.num_rows = place_.here(Tensor(at_.num_rows, kI32, {sizes_.num_local_experts}));
  if (series_.row_source) output.row_source = shaped(at_.row_source, kI32, 3);
  if (token_major_) {
    output.topk_idx = shaped(at_.topk_idx, kI32, config_.topk);
    output.topk_weights = shaped(at_.topk_weights, kF32, config_.topk);
  }
  return output;
}

Tensor BenchTensors::rows() const { return shaped(at_.rows, config_.row_dtype, config_.hidden); }

Tensor BenchTensors::y() const {
  return place_.here(Tensor(at_.y, config_.output_dtype, {config_.max_tokens, config_.hidden}));
}

double tensors_bytes(const Series& series, const AllToAllConfig& config, const AllToAllSizes& sizes) {
  const auto token = static_cast<double>(sizes.row_bytes + bytes_of_scales(config, sizes));
  const auto hidden = static_cast<double>(config.hidden);
  const double given = config.quantise == kQuantiseNone ? token : 2 * hidden;
  const double row = hidden * static_cast<double>(moeway_dtype_bytes(config.row_dtype));
  const double sum = hidden * static_cast<double>(moeway_dtype_bytes(config.output_dtype));
  return static_cast<double>(sizes.max_rows) * (token + row + 12) +
         static_cast<double>(config.max_tokens) * (series.sets * (given + 8.0 * config.topk) + sum);
}

}  // namespace moeway::cli
