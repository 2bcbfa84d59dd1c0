#include "reference/inputs.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "reference/quantise.h"

namespace reference {
namespace {

// Of the hash's low bits: a whole number from -15 to 15, exact in every type.
float small_number(uint64_t word) { return static_cast<float>(static_cast<int>(word % 31) - 15); }

// Of moderate size, with all the bits of a float's mantissa.
float any_number(Random& random) {
  const double magnitude = std::ldexp(1.0 + random.fraction(), static_cast<int>(random.between(-5, 2)));
  return static_cast<float>(random.chance(50) ? magnitude : -magnitude);
}

void fill_x(const Shape& shape, Values values, uint64_t seed, RankInput& input) {
  const auto elements = static_cast<size_t>(input.num_tokens * shape.row_elements());
  const auto width = static_cast<size_t>(dtype_bytes(shape.dispatch_dtype));
  input.x.resize(elements * width);
  Random random(hash(seed, 1));
  if (values == Values::kAnyBits || shape.dispatch_dtype == DType::kBytes) {
    for (std::byte& byte : input.x) byte = static_cast<std::byte>(random.next());
    return;
  }
  const auto row = static_cast<uint64_t>(shape.row_elements());
  for (size_t i = 0; i < elements; ++i) {
    const float value = values == Values::kExact ? small_number(hash(seed, i / row, i % row)) : any_number(random);
    store(shape.dispatch_dtype, value, input.x.data() + i * width);
  }
}

void fill_scales(const Shape& shape, Values values, uint64_t seed, RankInput& input) {
  input.scales.resize(static_cast<size_t>(input.num_tokens * shape.token_scale_bytes()));
  Random random(hash(seed, 2));
  const DType dtype = shape.scale_dtype();
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  for (size_t at = 0; at < input.scales.size(); at += width) {
    if (values == Values::kAnyBits || dtype == DType::kBytes) {
      for (size_t i = 0; i < width; ++i) input.scales[at + i] = static_cast<std::byte>(random.next());
    } else if (dtype == DType::kUe8m0) {
      input.scales[at] = static_cast<std::byte>(random.between(127, 129));
    } else {
      const float scale = values == Values::kExact ? std::ldexp(1.0f, static_cast<int>(random.between(0, 2)))
                                                   : std::fabs(any_number(random));
      store(DType::kF32, scale, input.scales.data() + at);
    }
  }
}

// Blocks of numbers of many sizes, some of zeros; no sum leaves f16. With any bits also infinities and NaNs.
void fill_unquantised(const Shape& shape, Values values, uint64_t seed, RankInput& input) {
  const int64_t hidden = shape.hidden;
  input.unquantised.resize(static_cast<size_t>(2 * input.num_tokens * hidden));
  input.x.resize(static_cast<size_t>(input.num_tokens * hidden));
  input.scales.resize(static_cast<size_t>(input.num_tokens * shape.token_scale_bytes()));
  Random random(hash(seed, 5));
  for (int64_t t = 0; t < input.num_tokens; ++t) {
    std::byte* row = input.unquantised.data() + 2 * t * hidden;
    float size = 1;
    for (int64_t i = 0; i < hidden; ++i) {
      if (i % 128 == 0) size = random.chance(10) ? 0.0f : std::ldexp(1.0f, static_cast<int>(random.between(-20, 3)));
      const float value = values == Values::kExact ? small_number(random.next()) : any_number(random) * size;
      store(DType::kBf16, value, row + 2 * i);
      if (values == Values::kAnyBits) row[2 * i] = row[2 * i + 1] = static_cast<std::byte>(random.next());
    }
    quantise(shape, row, input.x.data() + t * hidden, input.scales.data() + t * shape.token_scale_bytes());
  }
}

float weight(const Shape& shape, Values values, Random& random, size_t route) {
  if (values != Values::kExact) return any_number(random) / 4;
  const int k = static_cast<int>(route % static_cast<size_t>(shape.topk));
  return std::ldexp(random.chance(75) ? 1.0f : -1.0f, -(k % 8));
}

}  // namespace

RankInput make_input(const Shape& shape, Values values, uint64_t seed, int round, int rank,
                     std::vector<int64_t> topk_idx) {
  RankInput input;
  input.num_tokens = static_cast<int64_t>(topk_idx.size()) / shape.topk;
  input.topk_idx = std::move(topk_idx);
  const uint64_t own = hash(seed, static_cast<uint64_t>(round), static_cast<uint64_t>(rank));
  if (shape.quantise == Quantise::kNone) {
    fill_x(shape, values, own, input);
    fill_scales(shape, values, own, input);
  } else {
    fill_unquantised(shape, values, own, input);
  }
  Random random(hash(own, 3));
  constexpr float kUnread[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30f};
  input.topk_weights.resize(input.topk_idx.size());
  for (size_t i = 0; i < input.topk_weights.size(); ++i)
    input.topk_weights[i] = input.topk_idx[i] < 0 ? random.pick(kUnread) : weight(shape, values, random, i);
  return input;
}

Batch make_batch(const Shape& shape, Values values, Routes routes, const std::vector<int64_t>& num_tokens,
                 uint64_t seed, int round) {
  Batch batch;
  for (int r = 0; r < shape.num_ranks; ++r) {
    if (r % shape.replicas != 0) {
      const RankInput same = batch.back();
      batch.push_back(same);
      continue;
    }
    // The rank that kOneRank piles onto must be the same for all senders, so their seeds differ only behind it.
    const uint64_t own = routes == Routes::kOneRank ? hash(seed, static_cast<uint64_t>(round))
                                                    : hash(seed, static_cast<uint64_t>(round), 7, r);
    batch.push_back(
        make_input(shape, values, seed, round, r, make_routes(shape, routes, num_tokens[static_cast<size_t>(r)], own)));
  }
  return batch;
}

std::vector<int64_t> make_num_tokens(const Shape& shape, Tokens tokens, uint64_t seed, int round) {
  Random random(hash(seed, static_cast<uint64_t>(round), 11));
  std::vector<int64_t> counts(static_cast<size_t>(shape.num_ranks));
  const int64_t chosen = random.between(0, shape.num_ranks - 1);
  for (size_t r = 0; r < counts.size(); ++r) {
    switch (tokens) {
      case Tokens::kRandom:
        counts[r] = random.between(0, shape.max_tokens);
        break;
      case Tokens::kFull:
        counts[r] = shape.max_tokens;
        break;
      case Tokens::kSomeEmpty:
        counts[r] = r % 2 == 0 ? 0 : random.between(1, shape.max_tokens);
        break;
      case Tokens::kOneRank:
        counts[r] = static_cast<int64_t>(r) == chosen ? shape.max_tokens : 0;
        break;
    }
  }
  return counts;
}

}  // namespace reference
