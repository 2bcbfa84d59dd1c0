// The data of a checked run: what every token holds, what every expert does with it, and what the sums must be. Each
// value follows from (seed, round, rank, token, element), so any rank can say what any other has sent.
//
// Elements are whole numbers up to 127 (fp8: any finite value, with powers of two as scales; where dispatch quantises:
// whole numbers up to 112, of which each block has one, times a power of two), and expert e multiplies
// by plus or minus a power of two. The rows that experts give back are then exact in bf16, f16 and f32; what is rounded
// is the sum alone, in the order that the library documents, so every sum can be compared bit by bit.
#pragma once

#include <moeway/all_to_all.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace moeway::cli {

// What expert `expert` multiplies by: one of twelve factors between 1/16 and 2 in size.
float expert_factor(int64_t expert);

class Pattern {
 public:
  Pattern(uint64_t seed, const AllToAllConfig& config, const AllToAllSizes& sizes);

  int64_t row_bytes() const { return row_bytes_; }
  // Bytes of a token's scales; 0 without.
  int64_t scales_bytes() const { return scales_bytes_; }
  DType scales_dtype() const;
  // What a rank gives to dispatch: rows of which type and size, and scales or none.
  DType given_dtype() const { return quantises() ? kBf16 : config_.dispatch_dtype; }
  int64_t given_row_bytes() const { return quantises() ? 2 * config_.hidden : row_bytes_; }
  int64_t given_scales_bytes() const { return quantises() ? 0 : scales_bytes_; }
  void fill_given_row(int64_t round, int rank, int64_t token, std::byte* row) const;
  // What dispatch delivers.
  void fill_row(int64_t round, int rank, int64_t token, std::byte* row) const;
  void fill_scales(int64_t round, int rank, int64_t token, std::byte* scales) const;

  // What an expert makes of a token: `hidden` numbers. Takes any bytes, also those that came damaged.
  void values(const std::byte* row, const std::byte* scales, float* values) const;

 private:
  bool quantises() const { return config_.quantise != kQuantiseNone; }
  int number_at(int64_t element, uint64_t random) const;
  float scale_of(const std::byte* scales, int64_t block) const;

  AllToAllConfig config_;
  uint64_t seed_;
  int64_t row_bytes_, scales_bytes_, num_scales_;
  std::vector<std::byte> elements_;  // The element for each of 256 random numbers, as it is delivered.
};

// One token's sum, as the documents define it: weights at combine: in k order, with fused multiply-add in float32,
// rounded once to the output type. Weights at dispatch: so for the experts of each rank, rounded to the output type
// (token_major: to the row type); these are added in rank order in float32 and rounded once.
class SumOracle {
 public:
  SumOracle(const AllToAllConfig& config, int num_ranks);
  // `values`: what Pattern::values gives for the token. `sum`: `hidden` elements of the output type. `experts` and
  // `weights`: the token's routes.
  void sum(const float* values, const int32_t* experts, const float* weights, std::byte* sum);
  // The same of any rows: `row_of(k)` is what the expert of route k gave back, `hidden` numbers that its type holds
  // exactly. They are needed until the next call of `row_of`.
  void sum_rows(const std::function<const float*(int32_t k)>& row_of, const int32_t* experts, const float* weights,
                std::byte* sum);

 private:
  static void add_route(const float* row, float weight, std::vector<float>& to);

  AllToAllConfig config_;
  std::vector<int32_t> owner_;  // Of each expert.
  std::vector<float> total_, partial_, row_;
};

// Which rank owns each expert: the first E mod W ranks own one more than the others.
std::vector<int32_t> expert_owners(int32_t num_experts, int num_ranks);

}  // namespace moeway::cli
