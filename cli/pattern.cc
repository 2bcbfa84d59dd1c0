#include "cli/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/numbers.h"
#include "cli/random.h"

namespace moeway::cli {
namespace {

constexpr int64_t kScaleBlock = 128;

// Fills `bytes` bytes with random ones; `key` decides all of them.
void fill_random(uint64_t key, int64_t bytes, std::byte* to) {
  Random random(key);
  int64_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    const uint64_t eight = random.next();
    std::memcpy(to + i, &eight, 8);
  }
  const uint64_t rest = random.next();
  if (i < bytes) std::memcpy(to + i, &rest, static_cast<size_t>(bytes - i));
}

uint64_t key_of(uint64_t seed, uint64_t what, int64_t round, int rank, int64_t token) {
  return mix({seed, what, static_cast<uint64_t>(round), static_cast<uint64_t>(rank), static_cast<uint64_t>(token)});
}

std::byte finite_e4m3(int number) {
  const int magnitude = std::min(number & 0x7f, 0x7e);  // 0x7f would be a NaN.
  return static_cast<std::byte>(magnitude == 0 ? 0 : magnitude | (number & 0x80));
}

float whole_number(int random) { return static_cast<float>(std::max(random - 128, -127)); }

// The e4m3 number nearest to `value`, of two that are as near the even one; by looking at all of them.
std::byte nearest_e4m3(float value) {
  int best = 0;
  for (int bits = 0; bits < 256; ++bits) {
    if ((bits & 0x7f) == 0x7f) continue;
    const float off = std::fabs(e4m3_to_float(static_cast<uint8_t>(bits)) - value),
                least = std::fabs(e4m3_to_float(static_cast<uint8_t>(best)) - value);
    if (off < least || (off == least && (best & 1) != 0 && (bits & 1) == 0)) best = bits;
  }
  return static_cast<std::byte>(best);
}

// Where dispatch quantises: 112 is the largest of each block, so that its scale is 1/4 of the block's power of two, and an
// element becomes four times its whole number.
constexpr int kLargest = 112;
std::vector<std::byte> make_quantised_elements() {
  std::vector<std::byte> elements(256);
  for (int number = 0; number < 256; ++number)
    elements[static_cast<size_t>(number)] = nearest_e4m3(4 * whole_number(number));
  return elements;
}

// elements_[i * width] is the element for the random byte i.
std::vector<std::byte> make_elements(DType dtype) {
  if (dtype == kBytes) return {};
  const int64_t width = moeway_dtype_bytes(dtype);
  std::vector<std::byte> elements(static_cast<size_t>(256 * width));
  for (int number = 0; number < 256; ++number) {
    std::byte* element = &elements[static_cast<size_t>(number * width)];
    const float value = whole_number(number);
    if (dtype == kF8E4M3)
      *element = finite_e4m3(number);
    else
      encode(dtype, &value, 1, element);
  }
  return elements;
}

}  // namespace

float expert_factor(int64_t expert) {
  const float power = std::ldexp(1.0f, static_cast<int>(expert % 6) - 4);
  return expert % 12 < 6 ? power : -power;
}

Pattern::Pattern(uint64_t seed, const AllToAllConfig& config, const AllToAllSizes& sizes)
    : config_(config),
      seed_(seed),
      row_bytes_(sizes.row_bytes),
      num_scales_(sizes.num_scales),
      elements_(config.quantise == kQuantiseNone ? make_elements(config.dispatch_dtype) : make_quantised_elements()) {
  scales_bytes_ = num_scales_ * (config.scales == kScalesF32 ? 4 : 1);
}

DType Pattern::scales_dtype() const {
  if (config_.scales == kScalesF32) return kF32;
  return config_.scales == kScalesUe8m0 ? kUe8m0 : kBytes;
}

void Pattern::fill_row(int64_t round, int rank, int64_t token, std::byte* row) const {
  const uint64_t key = key_of(seed_, 1, round, rank, token);
  if (elements_.empty()) return fill_random(key, row_bytes_, row);
  const size_t width = elements_.size() / 256;
  Random random(key);
  uint64_t eight = 0;
  for (int64_t i = 0; i < config_.hidden; ++i, eight >>= 8) {
    if (i % 8 == 0) eight = random.next();
    std::memcpy(row + static_cast<size_t>(i) * width, &elements_[static_cast<size_t>(number_at(i, eight)) * width],
                width);
  }
}

int Pattern::number_at(int64_t element, uint64_t random) const {
  const int number = static_cast<int>(random & 255);
  if (!quantises()) return number;
  const int largest = number < 128 ? 128 - kLargest : 128 + kLargest;
  return element % kScaleBlock == 0 ? largest : std::clamp(number, 128 - kLargest, 128 + kLargest);
}

void Pattern::fill_given_row(int64_t round, int rank, int64_t token, std::byte* row) const {
  if (!quantises()) return fill_row(round, rank, token, row);
  std::vector<std::byte> scales(static_cast<size_t>(scales_bytes_));
  fill_scales(round, rank, token, scales.data());
  std::vector<float> values(static_cast<size_t>(config_.hidden));
  Random random(key_of(seed_, 1, round, rank, token));
  uint64_t eight = 0;
  for (int64_t i = 0; i < config_.hidden; ++i, eight >>= 8) {
    if (i % 8 == 0) eight = random.next();
    values[static_cast<size_t>(i)] = 4 * scale_of(scales.data(), i / kScaleBlock) * whole_number(number_at(i, eight));
  }
  encode(kBf16, values.data(), config_.hidden, row);
}

float Pattern::scale_of(const std::byte* scales, int64_t block) const {
  float scale = 0;
  if (config_.scales == kScalesF32)
    std::memcpy(&scale, scales + 4 * block, sizeof(scale));
  else
    scale = ue8m0_to_float(std::to_integer<uint8_t>(scales[block]));
  return scale;
}

void Pattern::fill_scales(int64_t round, int rank, int64_t token, std::byte* scales) const {
  const uint64_t key = key_of(seed_, 2, round, rank, token);
  if (config_.scales == kScalesBytes) return fill_random(key, scales_bytes_, scales);
  Random random(key);
  for (int64_t i = 0; i < num_scales_; ++i) {
    const int exponent = static_cast<int>(random.below(7)) - 3;
    const float scale = std::ldexp(1.0f, exponent);
    if (config_.scales == kScalesF32)
      std::memcpy(scales + 4 * i, &scale, sizeof(scale));
    else
      scales[i] = static_cast<std::byte>(127 + exponent);
  }
}

void Pattern::values(const std::byte* row, const std::byte* scales, float* values) const {
  if (config_.dispatch_dtype == kBytes) {
    for (int64_t i = 0; i < config_.hidden; ++i)
      values[i] = static_cast<float>(std::to_integer<int>(row[i % row_bytes_]) - 128);
    return;
  }
  decode(config_.dispatch_dtype, row, config_.hidden, values);
  if (config_.scales != kScalesF32 && config_.scales != kScalesUe8m0) return;
  for (int64_t block = 0; block * kScaleBlock < config_.hidden; ++block) {
    const float scale = scale_of(scales, block);
    const int64_t end = std::min((block + 1) * kScaleBlock, config_.hidden);
    for (int64_t i = block * kScaleBlock; i < end; ++i) values[i] *= scale;
  }
}

std::vector<int32_t> expert_owners(int32_t num_experts, int num_ranks) {
  std::vector<int32_t> owners;
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    const int32_t local = num_experts / num_ranks + (rank < num_experts % num_ranks ? 1 : 0);
    owners.insert(owners.end(), static_cast<size_t>(local), rank);
  }
  return owners;
}

SumOracle::SumOracle(const AllToAllConfig& config, int num_ranks)
    : config_(config),
      owner_(expert_owners(config.num_experts, num_ranks)),
      total_(static_cast<size_t>(config.hidden)),
      partial_(static_cast<size_t>(config.hidden)),
      row_(static_cast<size_t>(config.hidden)) {}

void SumOracle::add_route(const float* row, float weight, std::vector<float>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = std::fma(weight, row[i], to[i]);
}

void SumOracle::sum(const float* values, const int32_t* experts, const float* weights, std::byte* sum) {
  const auto row_of = [&](int32_t k) {
    const float factor = expert_factor(experts[k]);
    for (size_t i = 0; i < row_.size(); ++i) row_[i] = factor * values[i];
    return row_.data();
  };
  sum_rows(row_of, experts, weights, sum);
}

void SumOracle::sum_rows(const std::function<const float*(int32_t k)>& row_of, const int32_t* experts,
                         const float* weights, std::byte* sum) {
  std::fill(total_.begin(), total_.end(), 0.0f);
  if (config_.weights == kWeightsAtCombine) {
    for (int32_t k = 0; k < config_.topk; ++k)
      if (experts[k] >= 0) add_route(row_of(k), weights[k], total_);
    return encode(config_.output_dtype, total_.data(), config_.hidden, sum);
  }
  const DType sent_dtype = config_.layout == kTokenMajor ? config_.row_dtype : config_.output_dtype;
  int32_t previous = -1;
  while (true) {
    int32_t rank = -1;  // The lowest rank after `previous` that has one of the token's experts.
    for (int32_t k = 0; k < config_.topk; ++k) {
      const int32_t owner = experts[k] < 0 ? -1 : owner_[static_cast<size_t>(experts[k])];
      if (owner > previous && (rank < 0 || owner < rank)) rank = owner;
    }
    if (rank < 0) break;
    std::fill(partial_.begin(), partial_.end(), 0.0f);
    for (int32_t k = 0; k < config_.topk; ++k)
      if (experts[k] >= 0 && owner_[static_cast<size_t>(experts[k])] == rank)
        add_route(row_of(k), weights[k], partial_);
    round_through(sent_dtype, config_.hidden, partial_.data());
    for (size_t i = 0; i < total_.size(); ++i) total_[i] += partial_[i];
    previous = rank;
  }
  encode(config_.output_dtype, total_.data(), config_.hidden, sum);
}

}  // namespace moeway::cli
