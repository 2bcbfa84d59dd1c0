// What peers write into a rank's segment: counts, headers, routes, payload, results, peer words. An honest peer sends first;
// then the input's bytes go over anything in the segment, before each receive. Whatever it holds, nothing is written
// beside the caller's tensors, the workspace and the segments, and no receive waits longer than its limit.
#include <moeway/c_api.h>

#include <array>
#include <memory>
#include <new>
#include <vector>

#include "core/executor.h"
#include "core/failure.h"
#include "core/tensors.h"
#include "fuzz/input.h"
#include "kernels/direct/dispatch.h"

namespace moeway::fuzz {
namespace {

constexpr int kNumRanks = 2;
constexpr auto kTimeout = std::chrono::milliseconds(1000);

class Heaps final : public transport::SymmetricHeap {
 public:
  explicit Heaps(size_t bytes) : bytes_(bytes) {
    for (std::byte*& heap : heaps_) {
      heap = static_cast<std::byte*>(::operator new(bytes, kAlignment));
      std::memset(heap, 0, bytes);
    }
  }
  ~Heaps() override {
    for (std::byte* heap : heaps_) ::operator delete(heap, kAlignment);
  }
  size_t bytes() const override { return bytes_; }
  std::byte* base(int rank) const override { return heaps_[static_cast<size_t>(rank)]; }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  const size_t bytes_;
  std::array<std::byte*, kNumRanks> heaps_{};
};

// Nobody will come any more: a wait for what is not there ends at once.
class NoPeers final : public transport::Transport {
 public:
  const char* name() const override { return "none"; }
  Result<std::unique_ptr<transport::SymmetricHeap>> allocate(size_t, Collective&, Deadline) override {
    return Status(MOEWAY_UNAVAILABLE, "no memory");
  }
  bool peer_lost(int) const override { return true; }
};

// One rank's object, without the calls that check a caller's arguments: these are right.
class Rank {
 public:
  Rank(const moeway_all_to_all_config& config, int rank, bool self_validating, const Heaps& heaps,
       const transport::Transport& transport)
      : rank_(rank), plan_(core::make_plan(config, rank, kNumRanks, self_validating).value()) {
    core::Hooks hooks;
    hooks.self_validating = self_validating;
    executor_ = core::make_host_executor(plan_, rank, heaps, transport, hooks).value();
  }

  // A byte for the number of tokens, then one for each route.
  void dispatch_send(Input& input) {
    const auto topk = static_cast<size_t>(plan_.config.topk);
    num_tokens_ = input.below_or_at(static_cast<int>(plan_.config.max_tokens));
    const auto num_tokens = static_cast<size_t>(num_tokens_);
    std::vector<std::byte> x(num_tokens * static_cast<size_t>(plan_.shape.row_bytes), std::byte{1});
    std::vector<std::byte> scales(num_tokens * static_cast<size_t>(plan_.shape.scales_bytes), std::byte{2});
    std::vector<int32_t> experts(num_tokens * topk);
    for (int32_t& expert : experts) expert = input.below_or_at(plan_.config.num_experts) - 1;
    weights_.assign(experts.size(), 0.5f);
    kernels::direct::DispatchArgs args = dispatch_args();
    args.num_tokens = num_tokens_;
    args.x = dense(x, plan_.shape.row_bytes, 1);
    if (plan_.has_scales()) args.scales = dense(scales, plan_.shape.scales_bytes, 1);
    args.topk_idx = {dense(experts, plan_.config.topk, 4)};
    if (plan_.weights_at_dispatch()) args.topk_weights = dense(weights_, plan_.config.topk, 4);
    args.mistakes = executor_->mistakes();
    require(executor_->dispatch(launch::Half::kSend, args).ok() && !executor_->failure(), "a send does not fail");
    ++num_dispatches_;
  }

  bool dispatch_recv() {
    const moeway_all_to_all_sizes& sizes = plan_.sizes;
    const auto rows = static_cast<size_t>(sizes.max_rows);
    const bool padded = plan_.config.layout == MOEWAY_EXPERT_PADDED;
    std::vector<std::byte> x(rows * static_cast<size_t>(plan_.shape.row_bytes));
    std::vector<std::byte> scales(rows * static_cast<size_t>(plan_.shape.scales_bytes));
    std::vector<int32_t> sources(plan_.token_major() ? 0 : rows * 3), counts(local_experts());
    std::vector<int64_t> firsts(local_experts());
    std::vector<int32_t> topk_idx(plan_.token_major() ? rows * static_cast<size_t>(plan_.config.topk) : 0);
    std::vector<float> topk_weights(topk_idx.size());
    const auto rows_of = [&](auto& data, int64_t bytes) -> kernels::direct::RowsView {
      return {reinterpret_cast<std::byte*>(data.data()), padded ? sizes.expert_capacity * bytes : 0, bytes};
    };
    kernels::direct::DispatchArgs args = dispatch_args();
    args.out = rows_of(x, plan_.shape.row_bytes);
    args.out_scales = rows_of(scales, plan_.shape.scales_bytes);
    args.row_source = rows_of(sources, 12);
    args.num_rows = counts.data();
    args.num_rows_stride = args.first_row_stride = 1;
    args.first_row = plan_.token_major() ? nullptr : firsts.data();
    args.expert_capacity = padded ? sizes.expert_capacity : 0;
    args.alignment = plan_.config.alignment;
    args.max_rows = sizes.max_rows;
    args.out_topk_idx = dense(topk_idx, plan_.config.topk, 4);
    args.out_topk_weights = dense(topk_weights, plan_.config.topk, 4);
    require(executor_->dispatch(launch::Half::kRecv, args).ok(), "a launch does not fail");
    return succeeded();
  }

  void combine_send() {
    const int64_t bytes = plan_.config.hidden * moeway_dtype_bytes(plan_.config.row_dtype);
    std::vector<std::byte> rows(static_cast<size_t>(plan_.sizes.max_rows * bytes), std::byte{3});
    kernels::direct::CombineArgs args = combine_args();
    const bool padded = plan_.config.layout == MOEWAY_EXPERT_PADDED;
    args.rows = {rows.data(), padded ? plan_.sizes.expert_capacity * bytes : 0, bytes};
    require(executor_->combine(launch::Half::kSend, args).ok() && !executor_->failure(), "a send does not fail");
  }

  void combine_recv() {
    const auto element = static_cast<int32_t>(moeway_dtype_bytes(plan_.config.output_dtype));
    std::vector<std::byte> y(static_cast<size_t>(num_tokens_ * plan_.config.hidden * element));
    kernels::direct::CombineArgs args = combine_args();
    args.y = dense(y, plan_.config.hidden, element);
    if (!plan_.weights_at_dispatch()) args.topk_weights = dense(weights_, plan_.config.topk, 4);
    require(executor_->combine(launch::Half::kRecv, args).ok(), "a launch does not fail");
    succeeded();
  }

 private:
  template <class T>
  static kernels::direct::MatrixView dense(std::vector<T>& data, int64_t columns, int32_t element) {
    return {reinterpret_cast<std::byte*>(data.data()), columns * element, element, columns, element};
  }
  size_t local_experts() const { return static_cast<size_t>(plan_.sizes.num_local_experts); }
  kernels::direct::Round round() const {
    return {layout::HeapLayout{plan_.shape}, layout::WorkspaceLayout{plan_.shape}, executor_->workspace(), rank_, 0};
  }
  kernels::direct::DispatchArgs dispatch_args() const {
    kernels::direct::DispatchArgs args{};
    args.round = round();
    args.distinct_experts = plan_.config.distinct_experts != 0;
    args.max_expert_rows = static_cast<uint32_t>(plan_.sizes.expert_capacity);
    args.drops = plan_.drops();
    return args;
  }
  kernels::direct::CombineArgs combine_args() const {
    kernels::direct::CombineArgs args{};
    args.round = round();
    args.hidden = static_cast<int32_t>(plan_.config.hidden);
    return args;
  }
  bool succeeded() const {
    const auto failure = executor_->failure();
    if (!failure) return true;
    require(failure->kind != exec::FailureKind::kDeadline, "nobody waits for one who has gone");
    require_readable(core::describe(*failure, rank_, plan_.config));
    return false;
  }

  const int rank_;
  const core::Plan plan_;
  std::unique_ptr<core::Executor> executor_;
  std::vector<float> weights_;
  int32_t num_tokens_ = 0;
  uint64_t num_dispatches_ = 0;
};

void change(const Heaps& heaps, Input& input) {
  for (int i = input.byte() % 16; i > 0; --i) {
    const size_t offset = input.value<uint16_t>() % heaps.bytes();
    const Bytes piece = input.piece();
    const size_t size = std::min(piece.size(), heaps.bytes() - offset);
    if (size > 0) std::memcpy(heaps.base(0) + offset, piece.data(), size);
  }
}

// A shape, both ranks' tokens, then a round with changes before each receive.
void run(Bytes bytes) {
  Input input(bytes);
  moeway_all_to_all_config config;
  moeway_all_to_all_config_init(&config);
  config.num_experts = 5;
  config.topk = 1 + input.below_or_at(2);
  config.hidden = 8 + 9 * input.below_or_at(1);
  config.max_tokens = 3;
  config.layout = static_cast<moeway_layout>(input.below_or_at(2));
  if (config.layout != MOEWAY_TOKEN_MAJOR) config.weights = static_cast<moeway_weights>(input.below_or_at(1));
  if (config.layout == MOEWAY_EXPERT_PACKED) config.alignment = 4;
  config.dispatch_dtype = input.below_or_at(1) == 0 ? MOEWAY_BF16 : MOEWAY_F8_E4M3;
  if (config.dispatch_dtype == MOEWAY_F8_E4M3) config.scales = MOEWAY_SCALES_F32;
  config.num_warps = 1 + input.below_or_at(2);
  config.execution = input.below_or_at(7) == 0 ? MOEWAY_LANES : MOEWAY_FIBERS;
  config.timeout_ms = kTimeout.count();
  const bool self_validating = input.below_or_at(1) == 1;
  const Result<core::Plan> plan = core::make_plan(config, 0, kNumRanks, self_validating);
  require(plan.ok(), "the shape is one", plan.status().message());
  const Heaps heaps(static_cast<size_t>(plan.value().sizes.heap_bytes));
  const NoPeers transport;
  Rank mine(config, 0, self_validating, heaps, transport);
  Rank peer(config, 1, self_validating, heaps, transport);
  mine.dispatch_send(input);
  peer.dispatch_send(input);
  if (!peer.dispatch_recv()) return;
  change(heaps, input);
  if (!mine.dispatch_recv()) return;
  mine.combine_send();
  peer.combine_send();
  change(heaps, input);
  mine.combine_recv();
}

const Registration kTarget("received", run);

}  // namespace
}  // namespace moeway::fuzz
