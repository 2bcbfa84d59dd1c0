#include "cli/experts.h"

#include <algorithm>
#include <cmath>

#include "cli/numbers.h"

namespace moeway::cli {

Experts::Experts(Buffers& buffers)
    : buffers_(buffers),
      values_(static_cast<size_t>(buffers.config.hidden)),
      result_(static_cast<size_t>(buffers.config.hidden)) {}

void Experts::run(const Pattern& pattern) {
  if (buffers_.token_major)
    run_tokens(pattern);
  else
    run_rows(pattern);
}

void Experts::write_row(int64_t row, const std::vector<float>& from) {
  encode(buffers_.config.row_dtype, from.data(), buffers_.config.hidden,
         buffers_.rows.data() + row * buffers_.out_row_bytes);
  buffers_.rows_written[static_cast<size_t>(row)] = 1;
}

void Experts::run_rows(const Pattern& pattern) {
  const AllToAllSizes& sizes = buffers_.sizes;
  for (int64_t local = 0; local < sizes.num_local_experts; ++local) {
    const float factor = expert_factor(sizes.first_local_expert + local);
    // What the library delivered may be wrong; that is for the check to say, not a reason to fall over here.
    const int64_t first = std::clamp(buffers_.first_row.as<int64_t>()[local], int64_t{0}, sizes.max_rows);
    const int64_t count =
        std::clamp(int64_t{buffers_.num_rows.as<int32_t>()[local]}, int64_t{0}, sizes.max_rows - first);
    for (int64_t row = first; row < first + count; ++row) {
      pattern.values(buffers_.x.data() + row * sizes.row_bytes, buffers_.scales.data() + row * buffers_.scales_bytes,
                     values_.data());
      for (size_t i = 0; i < values_.size(); ++i) result_[i] = factor * values_[i];
      write_row(row, result_);
    }
  }
}

// The caller's part in token_major: weigh and add the rows of this rank's experts, in k order.
void Experts::run_tokens(const Pattern& pattern) {
  const AllToAllSizes& sizes = buffers_.sizes;
  const int32_t topk = buffers_.config.topk;
  for (int64_t row = 0; row < sizes.max_rows; ++row) {
    const int32_t* locals = buffers_.topk_idx.as<int32_t>() + row * topk;
    const float* weights = buffers_.topk_weights.as<float>() + row * topk;
    const auto is_local = [&](int32_t local) { return local >= 0 && local < sizes.num_local_experts; };
    if (std::none_of(locals, locals + topk, is_local)) continue;
    pattern.values(buffers_.x.data() + row * sizes.row_bytes, buffers_.scales.data() + row * buffers_.scales_bytes,
                   values_.data());
    std::fill(result_.begin(), result_.end(), 0.0f);
    for (int32_t k = 0; k < topk; ++k) {
      if (!is_local(locals[k])) continue;
      const float factor = expert_factor(sizes.first_local_expert + locals[k]);
      for (size_t i = 0; i < values_.size(); ++i) result_[i] = std::fma(weights[k], factor * values_[i], result_[i]);
    }
    write_row(row, result_);
  }
}

}  // namespace moeway::cli
