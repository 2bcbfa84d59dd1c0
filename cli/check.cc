#include "cli/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cli/numbers.h"

namespace moeway::cli {

Check::Check(const Routes& routes, const Pattern& pattern, Buffers& buffers, int rank, int num_ranks,
             std::function<void()> alive)
    : routes_(routes),
      pattern_(pattern),
      buffers_(buffers),
      rank_(rank),
      num_ranks_(num_ranks),
      alive_(std::move(alive)),
      oracle_(buffers.config, num_ranks),
      owners_(expert_owners(buffers.config.num_experts, num_ranks)),
      expert_rows_(static_cast<size_t>(buffers.sizes.num_local_experts)),
      row_(static_cast<size_t>(pattern.row_bytes())),
      scales_(static_cast<size_t>(pattern.scales_bytes())),
      sum_(static_cast<size_t>(buffers.sum_bytes)),
      values_(static_cast<size_t>(buffers.config.hidden)) {}

void Check::round(int64_t round, bool thorough) {
  round_ = round;
  count(routes_.batch(round, rank_));
  count_room();
  check_counts();
  if (buffers_.token_major)
    check_token_rows();
  else
    check_expert_rows();
  check_untouched(thorough);
  check_sums();
  check_guards();
}

int64_t Check::local_of(int32_t expert) const {
  if (expert < 0 || owners_[static_cast<size_t>(expert)] != rank_) return -1;
  return expert - buffers_.sizes.first_local_expert;
}

bool Check::sends(const Batch& batch, int64_t token) const {
  return routes_.sender(rank_, token, batch.num_tokens) == rank_;
}

void Check::count(const Batch& batch) {
  std::vector<int32_t> to;
  for (int64_t t = 0; t < batch.num_tokens; ++t) {
    if (!sends(batch, t)) continue;
    ++moved_.tokens;
    to.clear();
    for (int32_t k = 0; k < routes_.topk; ++k) {
      const int32_t expert = batch.experts[static_cast<size_t>(t * routes_.topk + k)];
      if (expert >= 0) to.push_back(owners_[static_cast<size_t>(expert)]);
    }
    moved_.routes += std::ssize(to);
    std::sort(to.begin(), to.end());
    moved_.tokens_sent += std::unique(to.begin(), to.end()) - to.begin();
  }
}

// With a bound, an expert's first rows have room (padded), or the first rows of a rank's experts with their padding.
void Check::count_room() {
  const AllToAllConfig& config = buffers_.config;
  std::vector<int64_t> rows(owners_.size());
  rows_before_.assign(owners_.size(), 0);
  for (int source = 0; source < num_ranks_; source += routes_.replicas) {
    if (routes_.group(source) == routes_.group(rank_)) rows_before_ = rows;
    for (const int32_t expert : routes_.batch(round_, source).experts)
      if (expert >= 0) ++rows[static_cast<size_t>(expert)];
  }
  room_ = rows;
  if (config.max_recv_tokens == 0 || buffers_.token_major) return;
  int64_t first = 0;  // Of the expert, among its rank's.
  for (size_t expert = 0; expert < rows.size(); ++expert) {
    if (config.layout == kExpertPadded || expert == 0 || owners_[expert] != owners_[expert - 1]) first = 0;
    room_[expert] = std::min(rows[expert], config.max_recv_tokens - first);
    first += (room_[expert] + config.alignment - 1) / config.alignment * config.alignment;
  }
}

void Check::check_counts() {
  counts_.assign(expert_rows_.size(), 0);
  for (int source = 0; source < num_ranks_; source += routes_.replicas)
    for (const int32_t expert : routes_.batch(round_, source).experts)
      if (const int64_t local = local_of(expert); local >= 0) ++counts_[static_cast<size_t>(local)];
  for (size_t local = 0; local < counts_.size(); ++local) {
    const int64_t room = room_[static_cast<size_t>(buffers_.sizes.first_local_expert) + local];
    moved_.rows_dropped += counts_[local] - room;
    counts_[local] = room;
  }

  first_rows_.assign(counts_.size(), 0);
  int64_t next = 0;
  for (size_t local = 0; local < counts_.size(); ++local) {
    const int64_t expert = buffers_.sizes.first_local_expert + static_cast<int64_t>(local);
    expert_rows_[local] += counts_[local];
    moved_.rows_received += counts_[local];
    const int64_t got = buffers_.num_rows.as<int32_t>()[local];
    if (got != counts_[local])
      findings_.add({.rank = rank_,
                     .round = round_ + 1,
                     .what = "count",
                     .expert = expert,
                     .expected = std::to_string(counts_[local]),
                     .got = std::to_string(got)});
    if (buffers_.token_major) continue;
    if (buffers_.config.layout == kExpertPadded) next = static_cast<int64_t>(local) * buffers_.sizes.expert_capacity;
    const int64_t alignment = buffers_.config.layout == kExpertPacked ? buffers_.config.alignment : 1;
    first_rows_[local] = next = (next + alignment - 1) / alignment * alignment;
    next += counts_[local];
    if (const int64_t first = buffers_.first_row.as<int64_t>()[local]; first != first_rows_[local])
      findings_.add({.rank = rank_,
                     .round = round_ + 1,
                     .what = "first_row",
                     .expert = expert,
                     .expected = std::to_string(first_rows_[local]),
                     .got = std::to_string(first)});
  }
}

// The rows of an expert lie in order of (source rank, token, k), which with replicas is that of (group, token, k): walked
// in this order, each takes the next place.
void Check::check_expert_rows() {
  std::vector<int64_t> next = first_rows_;
  for (int source = 0; source < num_ranks_; source += routes_.replicas) {
    const Batch& batch = routes_.batch(round_, source);
    for (int64_t t = 0; t < batch.num_tokens; ++t) {
      bool filled = false;
      for (int32_t k = 0; k < routes_.topk; ++k) {
        const int32_t expert = batch.experts[static_cast<size_t>(t * routes_.topk + k)];
        const int64_t local = local_of(expert);
        if (local < 0) continue;
        if (!filled) {
          pattern_.fill_row(round_, routes_.group(source), t, row_.data());
          pattern_.fill_scales(round_, routes_.group(source), t, scales_.data());
          filled = true;
          ++moved_.tokens_received;
        }
        const int64_t row = next[static_cast<size_t>(local)]++;
        if (row - first_rows_[static_cast<size_t>(local)] < counts_[static_cast<size_t>(local)])
          check_row(row, expert, {routes_.sender(source, t, batch.num_tokens), t, k});
      }
    }
    alive_();
  }
}

void Check::check_row(int64_t row, int64_t expert, const Source& source) {
  const Mismatch where{.rank = rank_,
                       .round = round_ + 1,
                       .expert = expert,
                       .row = row,
                       .from_rank = source.rank,
                       .from_token = source.token,
                       .from_k = source.k};
  ++rows_checked_;
  if (row >= buffers_.sizes.max_rows) {
    findings_.add({.rank = rank_,
                   .round = round_ + 1,
                   .what = "count",
                   .expert = expert,
                   .row = row,
                   .expected = fmt::format("at most {} rows, as the sizes say", buffers_.sizes.max_rows),
                   .got = "a routing that needs more"});
    return;
  }
  buffers_.x_written[static_cast<size_t>(row)] = 1;
  compare("row", buffers_.config.dispatch_dtype, row_.data(), buffers_.x.data() + row * pattern_.row_bytes(),
          pattern_.row_bytes(), where);
  compare("scale", buffers_.scales_dtype, scales_.data(), buffers_.scales.data() + row * pattern_.scales_bytes(),
          pattern_.scales_bytes(), where);
  if (buffers_.token_major) return;
  const int32_t* got = buffers_.row_source.as<int32_t>() + row * 3;
  if (got[0] == source.rank && got[1] == source.token && got[2] == source.k) return;
  Mismatch wrong = where;
  wrong.what = "source";
  wrong.expected = fmt::format("rank {}, token {}, k {}", source.rank, source.token, source.k);
  wrong.got = fmt::format("rank {}, token {}, k {}", got[0], got[1], got[2]);
  findings_.add(std::move(wrong));
}

// token_major: token t of group g (without replicas: of rank g) lies in row g * M + t, if this rank has one of its experts.
void Check::check_token_rows() {
  for (int source = 0; source < num_ranks_; source += routes_.replicas) {
    const Batch& batch = routes_.batch(round_, source);
    for (int64_t t = 0; t < buffers_.config.max_tokens; ++t) {
      const int64_t row = routes_.group(source) * buffers_.config.max_tokens + t;
      const bool exists = t < batch.num_tokens;
      check_local_routes(row, {source, t, -1}, exists ? &batch : nullptr);
      if (!exists) continue;
      const auto first = batch.experts.begin() + t * routes_.topk;
      if (std::none_of(first, first + routes_.topk, [this](int32_t expert) { return local_of(expert) >= 0; })) continue;
      pattern_.fill_row(round_, routes_.group(source), t, row_.data());
      pattern_.fill_scales(round_, routes_.group(source), t, scales_.data());
      ++moved_.tokens_received;
      check_row(row, -1, {routes_.sender(source, t, batch.num_tokens), t, -1});
    }
    alive_();
  }
}

void Check::check_local_routes(int64_t row, const Source& source, const Batch* batch) {
  for (int32_t k = 0; k < routes_.topk; ++k) {
    const size_t at = static_cast<size_t>(row * routes_.topk + k);
    const size_t route = static_cast<size_t>(source.token * routes_.topk + k);
    const int64_t local = batch == nullptr ? -1 : local_of(batch->experts[route]);
    const float weight = local < 0 ? 0.0f : batch->weights[route];
    const int32_t got = buffers_.topk_idx.as<int32_t>()[at];
    const float got_weight = buffers_.topk_weights.as<float>()[at];
    Mismatch wrong{.rank = rank_,
                   .round = round_ + 1,
                   .what = "topk_idx",
                   .row = row,
                   .element = k,
                   .from_rank = source.rank,
                   .from_token = source.token,
                   .from_k = k,
                   .expected = std::to_string(local),
                   .got = std::to_string(got)};
    if (got != local) findings_.add(wrong);
    if (std::memcmp(&weight, &got_weight, sizeof(float)) == 0) continue;
    wrong.what = "topk_weights";
    wrong.expected = fmt::format("{:.9g}", weight);
    wrong.got = fmt::format("{:.9g}", got_weight);
    findings_.add(std::move(wrong));
  }
}

void Check::check_untouched(bool thorough) {
  for (int64_t row = 0; row < buffers_.sizes.max_rows; ++row) {
    if (buffers_.x_written[static_cast<size_t>(row)] != 0) continue;
    const bool behind_the_last = row == 0 || buffers_.x_written[static_cast<size_t>(row - 1)] != 0;
    if (!thorough && !behind_the_last) continue;
    const bool clean = buffers_.x.is_poison(row * pattern_.row_bytes(), pattern_.row_bytes()) &&
                       buffers_.scales.is_poison(row * pattern_.scales_bytes(), pattern_.scales_bytes()) &&
                       (buffers_.token_major || buffers_.row_source.is_poison(row * 12, 12));
    if (!clean)
      findings_.add({.rank = rank_,
                     .round = round_ + 1,
                     .what = "untouched",
                     .row = row,
                     .expected = "a row that holds nothing left as it was",
                     .got = "something written to it"});
    if (thorough && row % 1024 == 0) alive_();
  }
}

void Check::check_sums() {
  const Batch& batch = routes_.batch(round_, rank_);
  std::vector<int64_t> next = rows_before_;
  std::vector<int32_t> experts(static_cast<size_t>(routes_.topk));
  for (int64_t t = 0; t < batch.num_tokens; ++t) {
    const size_t route = static_cast<size_t>(t * routes_.topk);
    for (size_t k = 0; k < experts.size(); ++k) {
      experts[k] = batch.experts[route + k];
      if (experts[k] < 0) continue;
      const auto expert = static_cast<size_t>(experts[k]);
      if (next[expert]++ >= room_[expert]) experts[k] = -1;  // Dropped.
    }
    pattern_.fill_row(round_, routes_.group(rank_), t, row_.data());
    pattern_.fill_scales(round_, routes_.group(rank_), t, scales_.data());
    pattern_.values(row_.data(), scales_.data(), values_.data());
    oracle_.sum(values_.data(), experts.data(), &batch.weights[route], sum_.data());
    compare("sum", buffers_.config.output_dtype, sum_.data(), buffers_.sums.data() + t * buffers_.sum_bytes,
            buffers_.sum_bytes, {.rank = rank_, .round = round_ + 1, .row = t});
    ++sums_checked_;
    if (t % 16 == 0) alive_();
  }
  const int64_t behind = batch.num_tokens * buffers_.sum_bytes;
  if (!buffers_.sums.is_poison(behind, buffers_.sums.bytes() - behind))
    findings_.add({.rank = rank_,
                   .round = round_ + 1,
                   .what = "untouched",
                   .row = batch.num_tokens,
                   .expected = "nothing behind the sum of the last token",
                   .got = "something written there"});
}

void Check::check_guards() {
  const struct {
    const char* name;
    const GuardedBytes& bytes;
  } guarded[] = {{"x", buffers_.x},
                 {"scales", buffers_.scales},
                 {"num_rows", buffers_.num_rows},
                 {"first_row", buffers_.first_row},
                 {"row_source", buffers_.row_source},
                 {"topk_idx", buffers_.topk_idx},
                 {"topk_weights", buffers_.topk_weights},
                 {"rows", buffers_.rows},
                 {"y", buffers_.sums}};
  for (const auto& [name, bytes] : guarded)
    if (!bytes.guard_intact())
      findings_.add({.rank = rank_,
                     .round = round_ + 1,
                     .what = "guard",
                     .expected = fmt::format("nothing behind the end of {}", name),
                     .got = "something written there"});
}

void Check::compare(const char* what, DType dtype, const std::byte* expected, const std::byte* got, int64_t bytes,
                    Mismatch where) {
  if (bytes == 0 || std::memcmp(expected, got, static_cast<size_t>(bytes)) == 0) return;
  if (findings_.full()) return findings_.count_one();
  const int64_t width = moeway_dtype_bytes(dtype);
  int64_t element = 0;
  while (std::memcmp(expected + element * width, got + element * width, static_cast<size_t>(width)) == 0) ++element;
  where.what = what;
  where.element = element;
  where.expected = element_text(dtype, expected + element * width);
  where.got = element_text(dtype, got + element * width);
  findings_.add(std::move(where));
}

}  // namespace moeway::cli
