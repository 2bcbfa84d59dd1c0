#include "cli/bench/bench_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "cli/numbers.h"

namespace moeway::cli {
namespace {

constexpr size_t kKeptPerRank = 4;
constexpr int64_t kTokensWorthAThread = 64;
constexpr int kPoison = 0xff;

template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

// The first element that differs, as text; "" if none does.
std::string difference(DType dtype, const std::byte* expected, const std::byte* got, int64_t bytes) {
  if (bytes == 0 || std::memcmp(expected, got, static_cast<size_t>(bytes)) == 0) return "";
  const int64_t width = moeway_dtype_bytes(dtype);
  int64_t i = 0;
  while (std::memcmp(expected + i * width, got + i * width, static_cast<size_t>(width)) == 0) ++i;
  return fmt::format("element {}: expected {}, got {}", i, element_text(dtype, expected + i * width),
                     element_text(dtype, got + i * width));
}

}  // namespace

// A copy of the outputs, the runs one after another.
struct BenchCheck::Fetched {
  std::vector<RowRange> runs;
  std::vector<int64_t> begin;  // Of each run, in rows of what follows.
  std::vector<std::byte> x, scales, y;
  std::vector<int32_t> num_rows, sources, topk_idx;
  std::vector<float> topk_weights;

  // Where row `row` of the output lies, which is in run `run`.
  int64_t place(size_t run, int64_t row) const { return begin[run] + row - runs[run].first; }
};

BenchCheck::BenchCheck(const About& about, BenchTensors& tensors, Place& place, std::function<void()> alive)
    : about_(about),
      tensors_(tensors),
      place_(place),
      alive_(std::move(alive)),
      token_major_(about.config.layout == kTokenMajor),
      owners_(expert_owners(about.config.num_experts, about.series.num_ranks)) {}

int64_t BenchCheck::local_of(int32_t expert) const {
  return owners_[static_cast<size_t>(expert)] == about_.rank ? expert - about_.sizes.first_local_expert : -1;
}

void BenchCheck::add(std::string text) {
  const std::lock_guard lock(mutex_);
  ++wrong_;
  if (findings_.size() < kKeptPerRank) findings_.push_back(fmt::format("rank {}, {}", about_.rank, text));
}

void BenchCheck::in_parallel(int64_t n, const std::function<void(int64_t begin, int64_t end)>& body) const {
  const int64_t share = std::max<int64_t>(1, std::thread::hardware_concurrency() / about_.series.num_ranks);
  const int64_t parts = std::clamp<int64_t>(n / kTokensWorthAThread, 1, share);
  std::vector<std::jthread> threads;
  for (int64_t part = 1; part < parts; ++part)
    threads.emplace_back([&body, n, parts, part] { body(n * part / parts, n * (part + 1) / parts); });
  body(0, n / parts);
}

std::vector<RowRange> BenchCheck::own_runs(const Placement& placement) const {
  if (token_major_) return placement.runs();
  const auto first = placement.runs().begin() + about_.sizes.first_local_expert;
  std::vector<RowRange> runs(first, first + about_.sizes.num_local_experts);
  if (about_.config.layout == kExpertPadded)
    for (RowRange& run : runs) run.count = std::min(run.count + 1, about_.sizes.expert_capacity);
  return runs;
}

Status BenchCheck::poison(int set) {
  const BenchTensors::Pointers& at = tensors_.at();
  const Placement placement(about_.config, about_.sizes.expert_capacity, about_.routes, set, about_.series.num_ranks);
  Status status = place_.fill(at.num_rows, kPoison, about_.sizes.num_local_experts * 4);
  const auto fill = [&](std::byte* to, int64_t bytes) {
    if (status.ok() && to != nullptr) status = place_.fill(to, kPoison, bytes);
  };
  const auto rows = [&](std::byte* to, const RowRange& run, int64_t bytes) {
    if (to != nullptr) fill(to + run.first * bytes, run.count * bytes);
  };
  for (const RowRange& run : own_runs(placement)) {
    rows(at.x, run, about_.sizes.row_bytes);
    rows(at.scales, run, tensors_.scales_bytes());
    rows(at.row_source, run, 12);
    rows(at.topk_idx, run, int64_t{about_.config.topk} * 4);
    rows(at.topk_weights, run, int64_t{about_.config.topk} * 4);
  }
  fill(at.y, tensors_.y_bytes());
  return status.ok() ? place_.synchronize() : status;
}

Status BenchCheck::fetch(const std::vector<RowRange>& runs, Fetched& to) {
  const BenchTensors::Pointers& at = tensors_.at();
  const int64_t route_bytes = token_major_ ? int64_t{about_.config.topk} * 4 : 0;
  int64_t rows = 0;
  to.runs = runs;
  for (const RowRange& run : runs) {
    to.begin.push_back(rows);
    rows += run.count;
  }
  to.x.resize(static_cast<size_t>(rows * about_.sizes.row_bytes));
  to.scales.resize(static_cast<size_t>(rows * tensors_.scales_bytes()));
  if (at.row_source != nullptr) to.sources.resize(static_cast<size_t>(rows * 3));
  to.topk_idx.resize(static_cast<size_t>(rows * route_bytes / 4));
  to.topk_weights.resize(to.topk_idx.size());
  to.num_rows.resize(static_cast<size_t>(about_.sizes.num_local_experts));
  to.y.resize(static_cast<size_t>(tensors_.y_bytes()));
  Status status;
  const auto copy = [&](std::byte* into, const std::byte* from, int64_t bytes) {
    if (status.ok() && from != nullptr && bytes > 0) status = place_.copy_out(into, from, bytes);
  };
  for (size_t i = 0; i < runs.size() && status.ok(); ++i) {
    const RowRange& run = runs[i];
    const auto part = [&](std::byte* into, const std::byte* from, int64_t bytes) {
      if (from != nullptr) copy(into + to.begin[i] * bytes, from + run.first * bytes, run.count * bytes);
    };
    part(to.x.data(), at.x, about_.sizes.row_bytes);
    part(to.scales.data(), at.scales, tensors_.scales_bytes());
    part(bytes_of(to.sources), at.row_source, 12);
    part(bytes_of(to.topk_idx), at.topk_idx, route_bytes);
    part(bytes_of(to.topk_weights), at.topk_weights, route_bytes);
  }
  copy(bytes_of(to.num_rows), at.num_rows, std::ssize(to.num_rows) * 4);
  copy(to.y.data(), at.y, std::ssize(to.y));
  return status;
}

void BenchCheck::check_counts(const Placement& placement, const Fetched& fetched) {
  for (size_t local = 0; local < fetched.num_rows.size(); ++local) {
    const auto expert = static_cast<size_t>(about_.sizes.first_local_expert) + local;
    if (fetched.num_rows[local] != placement.expert_rows()[expert])
      add(fmt::format("number of rows of expert {}: expected {}, got {}", expert, placement.expert_rows()[expert],
                      fetched.num_rows[local]));
  }
}

void BenchCheck::check_token(int set, int source, int64_t token, const Placement& placement, const Fetched& fetched,
                             std::vector<std::byte>& expected) {
  const int32_t topk = about_.config.topk;
  const int64_t row_bytes = about_.sizes.row_bytes, scales_bytes = tensors_.scales_bytes();
  const Batch& batch = about_.routes.batch(set, source);
  bool made = false;
  int64_t checked = 0;
  for (int32_t k = 0; k < topk; ++k) {
    const int64_t route = token * topk + k;
    const int64_t local = local_of(batch.experts[static_cast<size_t>(route)]);
    if (local < 0 || (token_major_ && made)) continue;
    if (!made) {
      about_.pattern.fill_row(set, source, token, expected.data());
      if (scales_bytes > 0) about_.pattern.fill_scales(set, source, token, expected.data() + row_bytes);
    }
    made = true;
    ++checked;
    const int64_t row = placement.row(source, route);
    const int64_t at = fetched.place(static_cast<size_t>(token_major_ ? source : local), row);
    const std::string name = fmt::format("set {}, row {} (rank {}, token {}, k {})", set, row, source, token, k);
    const DType scales_dtype = about_.config.scales == kScalesF32 ? kF32 : kBytes;
    if (const std::string wrong =
            difference(about_.config.dispatch_dtype, expected.data(), fetched.x.data() + at * row_bytes, row_bytes);
        !wrong.empty())
      add(name + ", " + wrong);
    if (const std::string wrong = difference(scales_dtype, expected.data() + row_bytes,
                                             fetched.scales.data() + at * scales_bytes, scales_bytes);
        !wrong.empty())
      add(name + ", scales: " + wrong);
    if (fetched.sources.empty()) continue;
    const int32_t* got = &fetched.sources[static_cast<size_t>(at * 3)];
    if (got[0] != source || got[1] != token || got[2] != k)
      add(fmt::format("{}: its source came as rank {}, token {}, k {}", name, got[0], got[1], got[2]));
  }
  const std::lock_guard lock(mutex_);
  rows_checked_ += checked;
}

void BenchCheck::check_local_routes(int set, int source, int64_t token, int64_t row, const Fetched& fetched) {
  const int32_t topk = about_.config.topk;
  const Batch& batch = about_.routes.batch(set, source);
  const int64_t at = fetched.place(static_cast<size_t>(source), row);
  for (int32_t k = 0; k < topk; ++k) {
    const auto route = static_cast<size_t>(token * topk + k);
    const auto got = static_cast<size_t>(at * topk + k);
    const int64_t local = local_of(batch.experts[route]);
    const float weight = local < 0 ? 0.0f : batch.weights[route];
    if (fetched.topk_idx[got] != local || std::memcmp(&fetched.topk_weights[got], &weight, sizeof weight) != 0)
      add(fmt::format("set {}, route {} of row {}: expected local expert {} with weight {:.9g}, got {} with {:.9g}",
                      set, k, row, local, weight, fetched.topk_idx[got], fetched.topk_weights[got]));
  }
}

void BenchCheck::check_tokens(int set, int source, const Placement& placement, const Fetched& fetched) {
  in_parallel(about_.config.max_tokens, [&](int64_t begin, int64_t end) {
    std::vector<std::byte> expected(static_cast<size_t>(about_.sizes.row_bytes + tensors_.scales_bytes()));
    for (int64_t token = begin; token < end; ++token) {
      check_token(set, source, token, placement, fetched, expected);
      if (token_major_)
        check_local_routes(set, source, token, placement.row(source, token * about_.config.topk), fetched);
      alive_();
    }
  });
}

// The row behind an expert's last one holds nothing, and nothing is written there.
void BenchCheck::check_behind(const std::vector<RowRange>& runs, const Fetched& fetched) {
  const int64_t row_bytes = about_.sizes.row_bytes;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (fetched.runs[i].count == runs[i].count) continue;
    const int64_t behind = runs[i].first + runs[i].count;
    const std::byte* row = fetched.x.data() + fetched.place(i, behind) * row_bytes;
    if (std::any_of(row, row + row_bytes, [](std::byte byte) { return byte != static_cast<std::byte>(kPoison); }))
      add(fmt::format("row {} of x holds nothing, expected it left as it was, got something written to it", behind));
  }
}

void BenchCheck::check_sums(int set, const Placement& placement, const Fetched& fetched) {
  const AllToAllConfig& config = about_.config;
  const Batch& batch = about_.routes.batch(set, about_.rank);
  const auto hidden = static_cast<size_t>(config.hidden), topk = static_cast<size_t>(config.topk);
  const int64_t y_bytes = config.hidden * moeway_dtype_bytes(config.output_dtype);
  in_parallel(config.max_tokens, [&](int64_t begin, int64_t end) {
    SumOracle oracle(config, about_.series.num_ranks);
    std::vector<std::byte> row(static_cast<size_t>(about_.expert_rows.row_bytes())), sum(static_cast<size_t>(y_bytes));
    std::vector<float> values(hidden), weights(topk);
    std::vector<int32_t> experts(topk);
    for (int64_t token = begin; token < end; ++token) {
      const auto first = static_cast<size_t>(token * config.topk);
      for (size_t k = 0; k < topk; ++k) {
        const int32_t expert = batch.experts[first + k];
        // token_major: one row for each rank, already weighed.
        const auto same_owner = [&](int32_t other) {
          return other >= 0 && owners_[static_cast<size_t>(other)] == owners_[static_cast<size_t>(expert)];
        };
        const auto so_far = experts.begin() + static_cast<std::ptrdiff_t>(k);
        experts[k] = token_major_ && std::any_of(experts.begin(), so_far, same_owner) ? -1 : expert;
        weights[k] = token_major_ ? 1.0f : batch.weights[first + k];
      }
      const auto row_of = [&](int32_t k) {
        const auto expert = static_cast<size_t>(experts[static_cast<size_t>(k)]);
        about_.expert_rows.fill(owners_[expert], placement.row(about_.rank, token * config.topk + k), row.data());
        about_.expert_rows.values(row.data(), values.data());
        return values.data();
      };
      oracle.sum_rows(row_of, experts.data(), weights.data(), sum.data());
      if (const std::string wrong =
              difference(config.output_dtype, sum.data(), fetched.y.data() + token * y_bytes, y_bytes);
          !wrong.empty())
        add(fmt::format("set {}, sum of token {}, {}", set, token, wrong));
      alive_();
    }
  });
  sums_checked_ += config.max_tokens;
}

Status BenchCheck::check(int set, const Wanted& wanted) {
  const Placement placement(about_.config, about_.sizes.expert_capacity, about_.routes, set, about_.series.num_ranks);
  Fetched fetched;
  if (Status status = fetch(own_runs(placement), fetched); !status.ok()) return status;
  check_counts(placement, fetched);
  for (int source = 0; source < about_.series.num_ranks; ++source) check_tokens(set, source, placement, fetched);
  if (wanted.behind && about_.config.layout == kExpertPadded) {
    const auto first = placement.runs().begin() + about_.sizes.first_local_expert;
    check_behind({first, first + about_.sizes.num_local_experts}, fetched);
  }
  if (wanted.sums) check_sums(set, placement, fetched);
  return Status();
}

}  // namespace moeway::cli
