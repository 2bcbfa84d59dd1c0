#include "cli/route_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/line_reader.h"
#include "cli/route_record.h"

namespace moeway::cli {
namespace {

// Batches of tokens that were recorded one by one, unless --tokens says otherwise.
constexpr int64_t kDefaultBlock = 128;
// Half a gigabyte of ids and weights. More would be held by every rank, and no run needs it.
constexpr int64_t kMaxRoutes = int64_t{64} << 20;

// Collects the batches of a file in the order in which they are complete.
class Collector {
 public:
  explicit Collector(const RouteFileOptions& options) : options_(options) {}

  // "" or what is wrong with the record, in view of the records before it.
  std::string add(RouteRecord record);
  bool enough() const {
    if (num_routes_ >= kMaxRoutes) return true;
    return pending_.size() <= 1 && std::ssize(batches_) >= options_.rounds * options_.num_ranks;
  }
  bool empty() const { return topk_ == 0; }
  Routes deal(bool whole_file);

 private:
  std::string check_experts(const RouteRecord& record);
  void make_up_weights(RouteRecord& record);
  void append(const RouteRecord& record, Batch& batch, int64_t first, int64_t last) const;

  const RouteFileOptions& options_;
  std::vector<std::pair<int64_t, Batch>> batches_;  // With the rank that recorded them.
  std::map<int64_t, Batch> pending_;                // Batch that is being filled, by rank that recorded it.
  int32_t topk_ = 0;
  int64_t num_experts_ = 0;  // As the records say; 0 if none did.
  int32_t largest_id_ = -1;
  int64_t num_routes_ = 0, num_made_up_ = 0, num_other_kinds_ = 0, num_other_layers_ = 0;
};

std::string Collector::check_experts(const RouteRecord& record) {
  if (record.num_experts) {
    if (num_experts_ != 0 && *record.num_experts != num_experts_)
      return fmt::format("num_experts: {}, expected {} as in the records before", *record.num_experts, num_experts_);
    num_experts_ = *record.num_experts;
  }
  const int64_t limit = options_.experts ? *options_.experts : num_experts_;
  for (size_t i = 0; i < record.experts.size(); ++i) {
    const int32_t expert = record.experts[i];
    largest_id_ = std::max(largest_id_, expert);
    if (limit != 0 && expert >= limit)
      return fmt::format("expert of token {}, route {}: {}, expected -1 to {} ({} is {})",
                         i / static_cast<size_t>(topk_), i % static_cast<size_t>(topk_), expert, limit - 1,
                         options_.experts ? "--experts" : "num_experts", limit);
  }
  return "";
}

// Falling with the position, as a router's are that lists its choices best first: K, K-1, ..., 1, over their sum.
void Collector::make_up_weights(RouteRecord& record) {
  num_made_up_ += record.num_tokens;
  const float sum = static_cast<float>(topk_) * static_cast<float>(topk_ + 1) / 2;
  for (int64_t t = 0; t < record.num_tokens; ++t)
    for (int32_t k = 0; k < topk_; ++k) record.weights.push_back(static_cast<float>(topk_ - k) / sum);
}

void Collector::append(const RouteRecord& record, Batch& batch, int64_t first, int64_t last) const {
  const auto at = [&](const auto& list, int64_t token) { return list.begin() + token * topk_; };
  batch.experts.insert(batch.experts.end(), at(record.experts, first), at(record.experts, last));
  batch.weights.insert(batch.weights.end(), at(record.weights, first), at(record.weights, last));
  batch.num_tokens += last - first;
}

std::string Collector::add(RouteRecord record) {
  if (!record.has_routes) {
    ++num_other_kinds_;
    return "";
  }
  if (options_.layer && record.layer.value_or(0) != *options_.layer) {
    ++num_other_layers_;
    return "";
  }
  if (record.topk != 0 && topk_ != 0 && record.topk != topk_)
    return fmt::format("topk: {} routes a token, expected {} as in the records before", record.topk, topk_);
  if (record.topk != 0) topk_ = record.topk;
  if (std::string wrong = check_experts(record); !wrong.empty()) return wrong;
  if (record.weights.empty()) make_up_weights(record);
  num_routes_ += std::ssize(record.experts);

  const int64_t rank = record.rank.value_or(0);
  Batch& batch = pending_[rank];
  if (record.is_batch && !options_.tokens) {
    append(record, batch, 0, record.num_tokens);
    batches_.emplace_back(rank, std::exchange(batch, {}));
    return "";
  }
  const int64_t block = options_.tokens.value_or(kDefaultBlock);
  for (int64_t first = 0; first < record.num_tokens;) {
    const int64_t last = std::min(record.num_tokens, first + block - batch.num_tokens);
    append(record, batch, first, last);
    if (batch.num_tokens == block) batches_.emplace_back(rank, std::exchange(batch, {}));
    first = last;
  }
  return "";
}

Routes Collector::deal(bool whole_file) {
  for (auto& [rank, batch] : pending_)
    if (whole_file && batch.num_tokens > 0) batches_.emplace_back(rank, std::move(batch));
  const bool several_ranks = pending_.size() > 1;
  Routes routes;
  routes.topk = topk_;
  routes.num_experts = options_.experts    ? *options_.experts
                       : num_experts_ != 0 ? static_cast<int32_t>(num_experts_)
                                           : std::max(largest_id_ + 1, topk_);
  const int64_t num_ranks = options_.num_ranks;
  routes.of_rank.resize(static_cast<size_t>(num_ranks));
  for (int64_t b = 0; b < std::ssize(batches_); ++b) {
    auto& [rank, batch] = batches_[static_cast<size_t>(b)];
    routes.of_rank[static_cast<size_t>((several_ranks ? rank : b) % num_ranks)].push_back(std::move(batch));
  }
  summarise(routes);

  if (several_ranks)
    routes.notes.push_back(
        fmt::format("recorded by {} ranks: batches of rank r go to rank r mod {}", pending_.size(), num_ranks));
  const int64_t idle = std::count_if(routes.of_rank.begin(), routes.of_rank.end(), [](auto& r) { return r.empty(); });
  if (idle > 0) routes.notes.push_back(fmt::format("{} of {} ranks get no batch and send nothing", idle, num_ranks));
  if (num_made_up_ > 0)
    routes.notes.push_back(
        fmt::format("{} tokens came without weights: made up, falling with the position, sum 1", num_made_up_));
  if (num_other_layers_ > 0)
    routes.notes.push_back(fmt::format("{} records of other layers left out", num_other_layers_));
  if (num_other_kinds_ > 0) routes.notes.push_back(fmt::format("{} records of other kinds left out", num_other_kinds_));
  if (!whole_file) routes.notes.push_back("the file has more than these rounds use; the rest was not read");
  return routes;
}

Status at_line(const LineReader& lines, std::string_view what) {
  return Status(MOEWAY_INVALID_ARGUMENT, fmt::format("{}:{}: {}", lines.path(), lines.line_number(), what));
}

}  // namespace

Result<Routes> read_route_file(const RouteFileOptions& options) {
  Result<LineReader> opened = LineReader::open(options.path);
  if (!opened.ok()) return opened.status();
  LineReader& lines = opened.value();
  Collector collector(options);
  std::string line;
  bool whole_file = false;
  while (true) {
    const Result<bool> more = lines.next(line);
    if (!more.ok()) return more.status();
    whole_file = !more.value();
    if (whole_file) break;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (collector.enough()) break;
    Result<RouteRecord> record = parse_route_record(line);
    if (!record.ok()) return at_line(lines, record.status().message());
    if (const std::string wrong = collector.add(std::move(record).value()); !wrong.empty())
      return at_line(lines, wrong);
  }
  if (collector.empty())
    return Status(MOEWAY_INVALID_ARGUMENT,
                  options.layer ? fmt::format("{}: no routes of layer {}, expected a record with some", options.path,
                                              *options.layer)
                                : fmt::format("{}: no routes, expected a record with some", options.path));
  Routes routes = collector.deal(whole_file);
  routes.source = options.path;
  return routes;
}

}  // namespace moeway::cli
