// What the rounds of a benchmark work on: a shape, random tokens and routes of a rank, a check function in place of
// experts, and what must come out. Shared by all ways to do a round, so that they do the same work.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace bench {

struct Shape {
  int num_ranks;
  int num_tokens;  // Of every rank.
  int hidden;
  int num_experts;
  int topk;

  int64_t row_bytes() const { return int64_t{2} * hidden; }  // bf16
};

using Bf16 = uint16_t;

inline float to_float(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }
// Round to nearest, ties to even. For finite values.
inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<Bf16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// A rank's batch.
struct Inputs {
  std::vector<Bf16> x;           // [T, H]
  std::vector<int32_t> experts;  // [T, K], all different in a row
  std::vector<float> weights;    // [T, K]
};

// Routes are skewed, as routers' are: expert number p of a random order is chosen about as often as 1 / (p + 8). The
// order is that of the set, equal on all ranks, so that some ranks get more than others.
inline Inputs make_inputs(const Shape& shape, int rank, int set) {
  std::mt19937 order_generator(static_cast<uint32_t>(1000 + set));
  std::vector<int32_t> order(static_cast<size_t>(shape.num_experts));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), order_generator);

  std::mt19937 generator(static_cast<uint32_t>(7919 * set + rank + 1));
  std::uniform_real_distribution<float> uniform(1e-6f, 1.0f);
  Inputs inputs;
  inputs.x.resize(static_cast<size_t>(shape.num_tokens) * static_cast<size_t>(shape.hidden));
  for (Bf16& value : inputs.x) value = to_bf16(2.0f * uniform(generator) - 1.0f);
  std::vector<std::pair<float, int32_t>> keys(order.size());
  for (int token = 0; token < shape.num_tokens; ++token) {
    // The K smallest of exponential variables: a draw without replacement.
    for (size_t p = 0; p < order.size(); ++p)
      keys[p] = {-std::log(uniform(generator)) * (static_cast<float>(p) + 8.0f), order[p]};
    std::partial_sort(keys.begin(), keys.begin() + shape.topk, keys.end());
    float total = 0;
    const size_t first = inputs.weights.size();
    for (int k = 0; k < shape.topk; ++k) {
      inputs.experts.push_back(keys[static_cast<size_t>(k)].second);
      inputs.weights.push_back(uniform(generator));
      total += inputs.weights.back();
    }
    for (size_t i = first; i < inputs.weights.size(); ++i) inputs.weights[i] /= total;
  }
  return inputs;
}

// In place of an expert: a power of two that depends on the expert, so a row at the wrong expert shows.
inline float expert_factor(int expert) { return std::ldexp(1.0f, (expert * 7) % 5 - 2); }

inline void apply_expert(Bf16* rows, int64_t num_elements, int expert) {
  const float factor = expert_factor(expert);
  for (int64_t i = 0; i < num_elements; ++i) rows[i] = to_bf16(factor * to_float(rows[i]));
}

// Whether y is what the inputs say. Two roundings to bf16 lie on the way (one where the owner adds).
inline bool is_right(const Shape& shape, const Inputs& inputs, const std::vector<Bf16>& y) {
  const auto hidden = static_cast<size_t>(shape.hidden), topk = static_cast<size_t>(shape.topk);
  for (size_t token = 0; token < static_cast<size_t>(shape.num_tokens); ++token) {
    double factor = 0;
    for (size_t k = 0; k < topk; ++k) {
      const size_t route = token * topk + k;
      factor += static_cast<double>(inputs.weights[route]) * static_cast<double>(expert_factor(inputs.experts[route]));
    }
    for (size_t h = 0; h < hidden; ++h) {
      const double expected = factor * static_cast<double>(to_float(inputs.x[token * hidden + h]));
      const double seen = static_cast<double>(to_float(y[token * hidden + h]));
      if (!(std::abs(seen - expected) <= 0x1p-7 * std::abs(expected))) return false;  // A NaN is wrong, too.
    }
  }
  return true;
}

inline constexpr Bf16 kPoison = 0x7fff;  // A NaN.

}  // namespace bench
