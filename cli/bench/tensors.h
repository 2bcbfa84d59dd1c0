// The tensors of one rank in a benchmark: a few sets of inputs, one of everything else, in the rank's place.
#pragma once

#include <moeway/all_to_all.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cli/bench/inputs.h"
#include "cli/bench/series.h"
#include "cli/device/place.h"
#include "cli/pattern.h"

namespace moeway::cli {

// What experts give back. A row's numbers follow from its rank and its place there, so a row of another expert, of another
// token or of another set in its stead shows in the sum.
class ExpertRows {
 public:
  ExpertRows(uint64_t seed, const AllToAllConfig& config);
  int64_t row_bytes() const { return pattern_.row_bytes(); }
  void fill(int rank, int64_t row, std::byte* to) const { pattern_.fill_row(0, rank, row, to); }
  void values(const std::byte* row, float* values) const { pattern_.values(row, nullptr, values); }

 private:
  Pattern pattern_;
};

class BenchTensors {
 public:
  BenchTensors(const Series& series, const AllToAllConfig& config, const AllToAllSizes& sizes, Place& place);

  // Takes all memory and writes inputs and rows. Nothing is enqueued any more when it returns.
  Status prepare(const Routes& routes, const Pattern& pattern, const ExpertRows& expert_rows, int rank);

  DispatchInput input(int set) const;
  DispatchOutput output() const;
  Tensor rows() const;
  Tensor weights(int set) const;
  Tensor y() const;
  int64_t scales_bytes() const { return scales_bytes_; }
  int64_t y_bytes() const { return config_.max_tokens * config_.hidden * moeway_dtype_bytes(config_.output_dtype); }

  // In the place's memory. Those that the layout does not have are null.
  struct Pointers {
    std::byte *x = nullptr, *scales = nullptr, *num_rows = nullptr, *row_source = nullptr, *topk_idx = nullptr,
              *topk_weights = nullptr, *rows = nullptr, *y = nullptr;
  };
  const Pointers& at() const { return at_; }

 private:
  struct Set {
    std::byte *x = nullptr, *scales = nullptr, *experts = nullptr, *weights = nullptr;
  };
  Status allocate(const Pattern& pattern);
  Status write_set(const Pattern& pattern, const Batch& batch, int set, int rank);
  Status write_rows(const Routes& routes, const ExpertRows& expert_rows, int rank);
  Tensor shaped(std::byte* data, DType dtype, int64_t last) const;

  const Series& series_;
  const AllToAllConfig config_;
  const AllToAllSizes sizes_;
  Place& place_;
  bool token_major_;
  int64_t scales_bytes_;
  DType scales_dtype_;
  std::vector<Set> sets_;
  Pointers at_;
};

// Memory of `sizes` in a place, at most: what BenchTensors takes. Rows that are never used count too.
double tensors_bytes(const Series& series, const AllToAllConfig& config, const AllToAllSizes& sizes);

}  // namespace moeway::cli
