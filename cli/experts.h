// The experts of a checked run: they take the rows as the library delivered them and give back rows for combine.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/buffers.h"
#include "cli/pattern.h"

namespace moeway::cli {

class Experts {
 public:
  explicit Experts(Buffers& buffers);
  // Reads x, num_rows, first_row (token_major: topk_idx, topk_weights), whatever they hold, and writes `rows`.
  void run(const Pattern& pattern);

 private:
  void run_rows(const Pattern& pattern);
  void run_tokens(const Pattern& pattern);
  void write_row(int64_t row, const std::vector<float>& from);

  Buffers& buffers_;
  std::vector<float> values_, result_;
};

}  // namespace moeway::cli
