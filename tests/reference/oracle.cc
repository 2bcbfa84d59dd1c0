#include "reference/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace reference {
namespace {

const std::byte* token_x(const Shape& shape, const RankInput& input, int64_t token) {
  return input.x.data() + token * shape.row_bytes();
}

const std::byte* token_scales(const Shape& shape, const RankInput& input, int64_t token) {
  return input.scales.data() + token * shape.token_scale_bytes();
}

// Element h of a token as a number.
float token_value(const Shape& shape, const std::byte* x, const std::byte* scales, int64_t h) {
  if (shape.dispatch_dtype == DType::kBytes) {
    const int value = static_cast<int>(x[h % shape.token_bytes]) % 31 - 15;
    const bool doubled =
        shape.scales == Scales::kBytes && (scales[h % shape.scale_bytes] & std::byte{1}) != std::byte{};
    return static_cast<float>(doubled ? 2 * value : value);
  }
  const float value = load(shape.dispatch_dtype, x + h * dtype_bytes(shape.dispatch_dtype));
  switch (shape.scales) {
    case Scales::kF32:
    case Scales::kUe8m0:
      return value * load(shape.scale_dtype(), scales + h / 128 * dtype_bytes(shape.scale_dtype()));
    case Scales::kBytes:
    case Scales::kNone:
      break;
  }
  return value;
}

float expert_factor(Values values, int expert) {
  if (values == Values::kExact) return std::ldexp(1.0f, expert % 4);
  return 0.5f + 0.37f * static_cast<float>(expert % 7);
}

void place_rows(const Shape& shape, const Batch& batch, int rank, int64_t padded_rows, Received& received) {
  int64_t next = 0;
  for (int local = 0; local < shape.num_local_experts(rank); ++local) {
    const int expert = shape.first_expert(rank) + local;
    const bool padded = shape.layout == Layout::kExpertPadded;
    const int64_t first = padded ? local * padded_rows : next;
    int64_t room = std::numeric_limits<int64_t>::max();
    if (shape.max_recv_tokens > 0) room = padded ? shape.max_recv_tokens : shape.max_recv_tokens - first;
    int32_t count = 0, dropped = 0;
    for (int source = 0; source < shape.num_ranks; ++source) {
      const RankInput& input = batch[static_cast<size_t>(source)];
      for (int64_t i = 0; i < input.num_tokens * shape.topk; ++i) {
        if (input.topk_idx[static_cast<size_t>(i)] != expert) continue;
        const auto token = static_cast<int32_t>(i / shape.topk);
        if (shape.sender(source, token, input.num_tokens) != source) continue;
        if (count >= room) {
          ++dropped;
          continue;
        }
        received.rows.push_back({expert, source, token, static_cast<int32_t>(i % shape.topk), first + count++});
      }
    }
    received.num_rows.push_back(count);
    received.num_dropped.push_back(dropped);
    received.first_row.push_back(first);
    next = (first + count + shape.alignment - 1) / shape.alignment * shape.alignment;
  }
}

void place_tokens(const Shape& shape, const Batch& batch, int rank, Received& received) {
  const auto topk = static_cast<size_t>(shape.topk);
  const auto rows = static_cast<size_t>(shape.all_tokens());
  received.num_rows.assign(static_cast<size_t>(shape.num_local_experts(rank)), 0);
  received.num_dropped = received.num_rows;
  received.topk_idx.assign(rows * topk, -1);
  received.topk_weights.assign(rows * topk, 0.0f);
  for (int source = 0; source < shape.num_ranks; ++source) {
    const RankInput& input = batch[static_cast<size_t>(source)];
    for (int32_t t = 0; t < input.num_tokens; ++t) {
      if (shape.sender(source, t, input.num_tokens) != source) continue;
      const int64_t position = shape.group(source) * shape.max_tokens + t;
      bool here = false;
      for (size_t k = 0; k < topk; ++k) {
        const size_t route = static_cast<size_t>(t) * topk + k;
        const int64_t expert = input.topk_idx[route];
        if (expert < 0 || shape.owner(static_cast<int>(expert)) != rank) continue;
        const auto local = static_cast<int32_t>(expert - shape.first_expert(rank));
        ++received.num_rows[static_cast<size_t>(local)];
        received.topk_idx[static_cast<size_t>(position) * topk + k] = local;
        received.topk_weights[static_cast<size_t>(position) * topk + k] = input.topk_weights[route];
        here = true;
      }
      if (here) received.tokens.push_back({source, t, position});
    }
  }
}

// Which of a token's routes one rank serves: local experts, -1 for the others; and their weights.
struct RankRoutes {
  std::vector<int32_t> topk_idx;
  std::vector<float> topk_weights;
  bool any = false;
};

RankRoutes routes_of(const Shape& shape, const RankInput& input, int64_t token, int rank) {
  RankRoutes routes;
  for (int k = 0; k < shape.topk; ++k) {
    const auto at = static_cast<size_t>(token * shape.topk + k);
    const int64_t expert = input.topk_idx[at];
    const bool here = expert >= 0 && shape.owner(static_cast<int>(expert)) == rank;
    routes.topk_idx.push_back(here ? static_cast<int32_t>(expert - shape.first_expert(rank)) : -1);
    routes.topk_weights.push_back(here ? input.topk_weights[at] : 0.0f);
    routes.any = routes.any || here;
  }
  return routes;
}

// The sum `sum` + w[k] * row[k] over k in float32, over the routes that are not -1; experts count from `first_expert`.
template <class Index>
std::vector<float> weighted_sum(const Shape& shape, Values values, int first_expert, const std::byte* x,
                                const std::byte* scales, const Index* topk_idx, const float* topk_weights,
                                std::vector<float> sum) {
  for (int k = 0; k < shape.topk; ++k) {
    if (topk_idx[k] < 0) continue;
    const std::vector<std::byte> row =
        expert_row(shape, values, first_expert + static_cast<int>(topk_idx[k]), x, scales);
    for (size_t h = 0; h < sum.size(); ++h) {
      const float value = load(shape.row_dtype, row.data() + h * static_cast<size_t>(dtype_bytes(shape.row_dtype)));
      sum[h] = std::fma(topk_weights[k], value, sum[h]);
    }
  }
  return sum;
}

constexpr int64_t kDropped = -2;

std::vector<float> zeros(const Shape& shape) { return std::vector<float>(static_cast<size_t>(shape.hidden), 0.0f); }

// One token's sum before its last rounding, from `sum` on.
std::vector<float> combine_token(const Shape& shape, Values values, const RankInput& input, int64_t token,
                                 std::vector<float> sum) {
  const std::byte* x = token_x(shape, input, token);
  const std::byte* scales = token_scales(shape, input, token);
  if (shape.weights == Weights::kAtCombine) {
    const auto at = static_cast<size_t>(token * shape.topk);
    return weighted_sum(shape, values, 0, x, scales, input.topk_idx.data() + at, input.topk_weights.data() + at,
                        std::move(sum));
  }
  for (int rank = 0; rank < shape.num_ranks; ++rank) {
    const RankRoutes routes = routes_of(shape, input, token, rank);
    if (!routes.any) continue;
    const std::vector<float> partial = weighted_sum(shape, values, shape.first_expert(rank), x, scales,
                                                    routes.topk_idx.data(), routes.topk_weights.data(), zeros(shape));
    // token_major's rows travel in the type in which the caller gave them.
    const DType travels = shape.layout == Layout::kTokenMajor ? shape.row_dtype : shape.output_dtype;
    for (size_t h = 0; h < sum.size(); ++h) sum[h] += rounded(travels, partial[h]);
  }
  return sum;
}

std::vector<std::byte> stored(DType dtype, const std::vector<float>& values) {
  const auto width = static_cast<size_t>(dtype_bytes(dtype));
  std::vector<std::byte> bytes(values.size() * width);
  for (size_t i = 0; i < values.size(); ++i) store(dtype, values[i], bytes.data() + i * width);
  return bytes;
}

}  // namespace

Received expected_dispatch(const Shape& shape, const Batch& batch, int rank, int64_t padded_rows) {
  Received received;
  if (shape.layout == Layout::kTokenMajor) {
    place_tokens(shape, batch, rank, received);
  } else {
    place_rows(shape, batch, rank, padded_rows, received);
  }
  return received;
}

std::vector<std::byte> expert_row(const Shape& shape, Values values, int expert, const std::byte* x,
                                  const std::byte* scales) {
  std::vector<float> row(static_cast<size_t>(shape.hidden));
  const float factor = expert_factor(values, expert);
  for (int64_t h = 0; h < shape.hidden; ++h) row[static_cast<size_t>(h)] = token_value(shape, x, scales, h) * factor;
  return stored(shape.row_dtype, row);
}

std::vector<std::byte> token_row(const Shape& shape, Values values, int rank, const std::byte* x,
                                 const std::byte* scales, const int32_t* topk_idx, const float* topk_weights) {
  return stored(shape.row_dtype,
                weighted_sum(shape, values, shape.first_expert(rank), x, scales, topk_idx, topk_weights, zeros(shape)));
}

RankInput without_dropped(const Shape& shape, const Batch& batch, int rank) {
  RankInput input = batch[static_cast<size_t>(rank)];
  if (shape.max_recv_tokens == 0 || shape.layout == Layout::kTokenMajor) return input;
  std::vector<int64_t> kept = input.topk_idx;
  for (int64_t& expert : kept) expert = expert < 0 ? -1 : kDropped;
  for (int owner = 0; owner < shape.num_ranks; ++owner) {
    for (const Row& row : expected_dispatch(shape, batch, owner, 0).rows) {
      if (shape.group(row.source) != shape.group(rank)) continue;
      kept[static_cast<size_t>(int64_t{row.token} * shape.topk + row.k)] = row.expert;
    }
  }
  input.topk_idx = kept;
  return input;
}

std::vector<std::byte> expected_combine(const Shape& shape, Values values, const RankInput& input,
                                        const std::vector<std::byte>& before) {
  std::vector<std::byte> y;
  const int64_t width = dtype_bytes(shape.output_dtype);
  for (int64_t token = 0; token < input.num_tokens; ++token) {
    std::vector<float> start = zeros(shape);
    if (!before.empty()) {
      const std::byte* own = before.data() + token * shape.hidden * width;
      const auto first = input.topk_idx.begin() + token * shape.topk;
      if (std::all_of(first, first + shape.topk, [](int64_t expert) { return expert == -1; })) {
        y.insert(y.end(), own, own + shape.hidden * width);
        continue;
      }
      for (size_t h = 0; h < start.size(); ++h)
        start[h] = std::fma(1.0f, load(shape.output_dtype, own + static_cast<int64_t>(h) * width), start[h]);
    }
    const std::vector<std::byte> row =
        stored(shape.output_dtype, combine_token(shape, values, input, token, std::move(start)));
    y.insert(y.end(), row.begin(), row.end());
  }
  return y;
}

Traffic expected_traffic(const Shape& shape, const RankInput& input, int rank) {
  Traffic traffic;
  for (int64_t token = 0; token < input.num_tokens; ++token) {
    if (shape.sender(rank, token, input.num_tokens) != rank) continue;
    std::set<int> destinations;
    for (int k = 0; k < shape.topk; ++k) {
      const int64_t expert = input.topk_idx[static_cast<size_t>(token * shape.topk + k)];
      if (expert < 0) continue;
      ++traffic.routes_sent;
      destinations.insert(shape.owner(static_cast<int>(expert)));
    }
    traffic.tokens_sent += static_cast<int64_t>(destinations.size());
  }
  traffic.dispatch_sent_bytes = traffic.tokens_sent * (shape.row_bytes() + shape.token_scale_bytes());
  return traffic;
}

}  // namespace reference
