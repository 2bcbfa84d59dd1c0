// Kernels on the CPU: a call returns when its launch has ended.
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <vector>

#include "base/env.h"
#include "base/format.h"
#include "core/executor.h"
#include "exec/host/grid.h"
#include "kernels/direct/dispatch.h"
#include "launch/direct_host.h"
#include "layout/heap_layout.h"

namespace moeway::core {
namespace {

exec::HostForm form_of(moeway_execution execution) {
  if (execution == MOEWAY_THREADS) return exec::HostForm::kThreads;
  return execution == MOEWAY_LANES ? exec::HostForm::kLanes : exec::HostForm::kFibers;
}

// How a wait learns that its peer will not come.
class Watch final : public exec::PeerWatch {
 public:
  Watch(const std::byte* own_heap, const layout::HeapLayout& layout, const transport::Transport& transport)
      : own_heap_(own_heap), layout_(layout), transport_(transport) {}

  exec::PeerWord word(int peer) const override {
    const auto* word = reinterpret_cast<const uint64_t*>(own_heap_ + layout_.peer_word(peer));
    // Acquire; pairs with the release in tell_peers(): makes every signal visible that the peer sent before.
    return static_cast<exec::PeerWord>(exec::load_acquire<exec::Scope::kSystem>(word));
  }
  bool lost(int peer) const override { return transport_.peer_lost(peer); }

 private:
  const std::byte* own_heap_;
  layout::HeapLayout layout_;
  const transport::Transport& transport_;
};

class HostExecutor final : public Executor {
 public:
  HostExecutor(const Plan& plan, int rank, const transport::SymmetricHeap& heap, const transport::Transport& transport,
               const Hooks& hooks)
      : plan_(plan),
        rank_(rank),
        watch_(heap.base(rank), layout::HeapLayout{plan.shape}, transport),
        memory_(static_cast<size_t>(plan.sizes.workspace_bytes) / sizeof(Line) + 1) {
    for (int r = 0; r < plan.shape.num_ranks(); ++r) heaps_.push_back(heap.base(r));
    const layout::WorkspaceLayout layout{plan.shape};
    for (int team = 0; team < layout::kMaxTeams; ++team) {
      std::memcpy(workspace() + layout.epoch(team), &hooks.first_epoch, sizeof hooks.first_epoch);
    }
    constexpr float kOne = 1;
    std::memcpy(workspace() + layout.one(), &kOne, sizeof kOne);
    for (const layout::Range& range : layout::HeapLayout{plan.shape}.self_validating()) {
      std::memset(heap.base(rank) + range.begin, 0xff, static_cast<size_t>(range.bytes));
    }
    exec::HostGridOptions options;
    options.form = form_of(plan.config.execution);
    options.num_teams = plan.config.num_warps;
    options.scratch_bytes = static_cast<size_t>(kernels::direct::DispatchScratch::bytes<exec::HostTeam>(plan.shape));
    options.perturb_seed = hooks.perturb_seed != 0 ? hooks.perturb_seed : env().perturb;
    if (options.perturb_seed != 0) options.perturb_seed += static_cast<uint64_t>(rank) << 32;
    grid_ = exec::HostGrid::make(options);
  }

  Status dispatch(launch::Half half, const kernels::direct::DispatchArgs& args) override {
    exec::LaunchControl control = launch_control();
    launch::dispatch(*grid_, control, half, args, peers());
    failure_ = control.failure();
    return {};
  }
  Status combine(launch::Half half, const kernels::direct::CombineArgs& args) override {
    exec::LaunchControl control = launch_control();
    launch::combine(*grid_, control, half, plan_.row_element, plan_.output_element, args, peers());
    failure_ = control.failure();
    return {};
  }
  void set_stream(void*) override {}
  std::optional<exec::Failure> failure() const override { return failure_; }

  void tell_peers(exec::PeerWord word) override {
    const layout::HeapLayout layout{plan_.shape};
    for (std::byte* heap : heaps_) {
      // Release; pairs with the acquire in Watch::word: everything this rank has sent comes before it.
      exec::store_release<exec::Scope::kSystem>(reinterpret_cast<uint64_t*>(heap + layout.peer_word(rank_)),
                                                static_cast<uint64_t>(word));
    }
  }

  std::byte* workspace() const override {
    return const_cast<std::byte*>(reinterpret_cast<const std::byte*>(memory_.data()));
  }
  kernels::direct::Mistakes* mistakes() override { return &mistakes_; }
  layout::Counters counters() const override {
    layout::Counters counters;
    std::memcpy(&counters, workspace() + layout::WorkspaceLayout{plan_.shape}.counters(), sizeof counters);
    return counters;
  }
  std::vector<layout::PeerCounters> peer_counters() const override {
    std::vector<layout::PeerCounters> counters(static_cast<size_t>(plan_.shape.num_ranks()));
    std::memcpy(counters.data(), workspace() + layout::WorkspaceLayout{plan_.shape}.peer_counters(0),
                counters.size() * sizeof(layout::PeerCounters));
    return counters;
  }

 private:
  exec::LaunchControl launch_control() const {
    return {std::chrono::milliseconds(plan_.config.timeout_ms), watch_, wait_clock(workspace(), plan_.shape)};
  }
  struct alignas(layout::kLine) Line {
    std::byte bytes[layout::kLine];
  };

  peers::LoadStorePeers peers() const { return {heaps_.data(), plan_.shape.num_ranks(), heaps_.data()}; }

  const Plan plan_;
  const int rank_;
  const Watch watch_;
  std::vector<Line> memory_;  // The workspace.
  std::vector<std::byte*> heaps_;
  std::unique_ptr<exec::HostGrid> grid_;
  std::optional<exec::Failure> failure_;
  kernels::direct::Mistakes mistakes_;
};

}  // namespace

Result<std::unique_ptr<Executor>> make_host_executor(const Plan& plan, int rank, const transport::SymmetricHeap& heap,
                                                     const transport::Transport& transport, const Hooks& hooks) {
  if (const char* missing = launch::missing_instructions()) {
    return error(MOEWAY_UNAVAILABLE, "this processor lacks {}", missing);
  }
  try {
    return std::unique_ptr<Executor>(std::make_unique<HostExecutor>(plan, rank, heap, transport, hooks));
  } catch (const std::bad_alloc&) {
    return error(MOEWAY_OUT_OF_MEMORY,
                 "workspace of {} bytes (max_tokens {}, topk {}, {} ranks) and stacks of {} warps cannot be had",
                 plan.sizes.workspace_bytes, plan.config.max_tokens, plan.config.topk, plan.shape.num_ranks(),
                 plan.config.num_warps);
  } catch (const std::exception& failure) {  // Threads are refused with a std::system_error.
    return error(MOEWAY_OUT_OF_MEMORY, "num_warps {}: {}", plan.config.num_warps, failure.what());
  }
}

}  // namespace moeway::core
