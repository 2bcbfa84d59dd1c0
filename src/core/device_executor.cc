// Kernels on a CUDA device: a call enqueues its launch on the caller's stream and returns.
#include "core/device_executor.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "exec/device_control.h"
#include "launch/device_code.h"
#include "launch/device_memory.h"
#include "launch/direct_cuda.h"
#include "layout/heap_layout.h"
#include "transport/nvlink_transport.h"

namespace moeway::core {
namespace {

// What kernels tell the host, in memory that both reach.
struct Reports {
  exec::DeviceReport failure;
  kernels::direct::Mistakes mistakes;
};
static_assert(sizeof(Reports) <= launch::kMappedBytes);

class DeviceExecutor final : public Executor {
 public:
  DeviceExecutor(const Plan& plan, int rank, int device_index)
      : plan_(plan), rank_(rank), device_index_(device_index) {}
  ~DeviceExecutor() override {
    const launch::DeviceGuard guard(device_index_);
    // Kernels that are under way still use the memory. Their waits have a deadline.
    (void)launch::stream_synchronize(stream_);
    if (workspace_ != nullptr) launch::device_free(workspace_, own_stream_);
    if (heap_table_ != nullptr) launch::device_free(heap_table_, own_stream_);
    if (own_stream_ != nullptr) launch::stream_destroy(own_stream_);
    if (reports_ != nullptr) launch::mapped_give(reinterpret_cast<std::byte*>(reports_));
  }

  Status allocate(const transport::SymmetricHeap& heap, int num_sharers, const Hooks& hooks) {
    const launch::DeviceGuard guard(device_index_);
    const int64_t shared_bytes = launch::dispatch_shared_bytes(plan_.shape), most = launch::max_shared_bytes();
    if (shared_bytes > most) {
      return Status(MOEWAY_INVALID_ARGUMENT,
                    "num_experts " + std::to_string(plan_.config.num_experts) + " and topk " +
                        std::to_string(plan_.config.topk) + " need " + std::to_string(shared_bytes) +
                        " bytes of shared memory in a block, expected at most " + std::to_string(most));
    }
    for (int r = 0; r < plan_.shape.num_ranks(); ++r) heaps_.push_back(heap.base(r));
    const Result<void*> stream = launch::stream_create();
    if (!stream.ok()) return stream.status();
    own_stream_ = stream.value();
    const Result<std::byte*> workspace =
        launch::device_allocate(static_cast<size_t>(plan_.sizes.workspace_bytes), own_stream_);
    if (!workspace.ok()) return workspace.status();
    workspace_ = workspace.value();
    const size_t table_bytes = heaps_.size() * sizeof(std::byte*);
    const Result<std::byte*> table = launch::device_allocate(table_bytes, own_stream_);
    if (!table.ok()) return table.status();
    heap_table_ = table.value();
    const Result<std::byte*> reports = launch::mapped_take();
    if (!reports.ok()) return reports.status();
    reports_ = reinterpret_cast<Reports*>(reports.value());
    reports_->mistakes = {};
    if (Status s = copy(heap_table_, heaps_.data(), table_bytes); !s.ok()) return s;
    const std::vector<uint64_t> epochs(layout::kMaxTeams, hooks.first_epoch);
    const layout::WorkspaceLayout layout{plan_.shape};
    if (Status s = copy(workspace_ + layout.epoch(0), epochs.data(), epochs.size() * sizeof(uint64_t)); !s.ok())
      return s;
    constexpr float kOne = 1;
    if (Status s = copy(workspace_ + layout.one(), &kOne, sizeof kOne); !s.ok()) return s;
    for (const layout::Range& range : layout::HeapLayout{plan_.shape}.self_validating()) {
      std::byte* begin = heaps_[static_cast<size_t>(rank_)] + range.begin;
      if (Status s = launch::device_fill(begin, 0xff, static_cast<size_t>(range.bytes), own_stream_); !s.ok()) return s;
    }
    // Ranks that share the device wait for each other, so their blocks must be resident together.
    num_blocks_ = std::max(1, launch::num_multiprocessors() / num_sharers);
    if (plan_.config.num_sms > num_blocks_) {
      return Status(MOEWAY_INVALID_ARGUMENT, "num_sms is " + std::to_string(plan_.config.num_sms) +
                                                 ", expected at most " + std::to_string(num_blocks_) +
                                                 ": what each of the device's " + std::to_string(num_sharers) +
                                                 " ranks can have");
    }
    if (plan_.config.num_sms > 0) num_blocks_ = plan_.config.num_sms;
    overlap_ = num_sharers == 1 && launch::overlaps_launches();
    return {};
  }

  Status dispatch(launch::Half half, const kernels::direct::DispatchArgs& args) override {
    const launch::DeviceGuard guard(device_index_);
    return launched(launch::dispatch(grid(), control(), half, args, peers()), "dispatch");
  }
  Status combine(launch::Half half, const kernels::direct::CombineArgs& args) override {
    const launch::DeviceGuard guard(device_index_);
    return launched(launch::combine(grid(), control(), half, plan_.row_element, plan_.output_element, args, peers()),
                    "combine");
  }
  std::optional<exec::Failure> failure() const override {
    // Acquire; pairs with the kernel's release: makes the report visible.
    if (exec::load_acquire<exec::Scope::kSystem>(&reports_->failure.failed) == 0) return std::nullopt;
    return reports_->failure.failure;
  }

  void tell_peers(exec::PeerWord word) override {
    const launch::DeviceGuard guard(device_index_);
    // Behind everything that this rank has sent. A peer that cannot be written to any more has its own deadline.
    (void)launch::stream_synchronize(stream_);
    const layout::HeapLayout layout{plan_.shape};
    const auto value = static_cast<uint64_t>(word);
    for (std::byte* heap : heaps_) (void)copy(heap + layout.peer_word(rank_), &value, sizeof value);
  }

  void set_stream(void* stream) override { stream_ = stream; }
  std::byte* workspace() const override { return workspace_; }
  kernels::direct::Mistakes* mistakes() override { return &reports_->mistakes; }
  layout::Counters counters() const override {
    const launch::DeviceGuard guard(device_index_);
    layout::Counters counters{};
    (void)copy(&counters, workspace_ + layout::WorkspaceLayout{plan_.shape}.counters(), sizeof counters);
    return counters;
  }
  std::vector<layout::PeerCounters> peer_counters() const override {
    const launch::DeviceGuard guard(device_index_);
    std::vector<layout::PeerCounters> counters(static_cast<size_t>(plan_.shape.num_ranks()));
    (void)copy(counters.data(), workspace_ + layout::WorkspaceLayout{plan_.shape}.peer_counters(0),
               counters.size() * sizeof(layout::PeerCounters));
    return counters;
  }

 private:
  Status copy(void* dst, const void* src, size_t bytes) const {
    return launch::device_copy(dst, src, bytes, own_stream_);
  }
  launch::CudaGrid grid() const { return {num_blocks_, stream_, overlap_}; }
  exec::DeviceControl control() const {
    const layout::HeapLayout layout{plan_.shape};
    return {&reports_->failure, static_cast<uint64_t>(plan_.config.timeout_ms) * 1000000,
            heaps_[static_cast<size_t>(rank_)] + layout.peer_word(0), layout.peer_word(1),
            wait_clock(workspace_, plan_.shape)};
  }
  peers::LoadStorePeers peers() const {
    return {heaps_.data(), plan_.shape.num_ranks(), reinterpret_cast<std::byte* const*>(heap_table_)};
  }
  static Status launched(int error, const char* kernel) {
    if (error == 0) return {};
    return Status(MOEWAY_INTERNAL, std::string("launch of ") + kernel + ": " + launch::error_words(error));
  }

  const Plan plan_;
  const int rank_;
  const int device_index_;
  std::vector<std::byte*> heaps_;
  std::byte* workspace_ = nullptr;
  std::byte* heap_table_ = nullptr;  // heaps_, on the device.
  Reports* reports_ = nullptr;
  void* stream_ = nullptr;      // The caller's.
  void* own_stream_ = nullptr;  // For copies outside the caller's order.
  int num_blocks_ = 1;
  bool overlap_ = false;
};

}  // namespace

Result<std::unique_ptr<Executor>> make_device_executor(const Plan& plan, int rank, int device_index,
                                                       const transport::SymmetricHeap& heap,
                                                       const transport::Transport& transport, const Hooks& hooks) {
  auto executor = std::make_unique<DeviceExecutor>(plan, rank, device_index);
  if (Status s = executor->allocate(heap, transport.num_sharers(), hooks); !s.ok()) return s;
  return std::unique_ptr<Executor>(std::move(executor));
}

Result<std::unique_ptr<transport::Transport>> make_device_transport(int device_index, Collective& collective,
                                                                    Deadline deadline) {
  auto transport = transport::make_nvlink_transport(device_index, collective, deadline);
  if (!transport.ok()) return transport;
  // The transport has told what is wrong with the device itself.
  const launch::DeviceGuard guard(device_index);
  if (Status s = collective.agree(launch::device_code_status(), deadline); !s.ok()) return s;
  return transport;
}

}  // namespace moeway::core
