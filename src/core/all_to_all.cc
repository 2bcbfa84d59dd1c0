#include "core/all_to_all.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "base/env.h"
#include "base/format.h"
#include "core/agreement.h"
#include "core/failure.h"
#include "core/tensors.h"
#include "kernels/direct/dispatch_recv.h"

namespace moeway::core {
namespace {

uint64_t next_object_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;  // Relaxed: only has to be unique.
}

exec::HostForm form_of(moeway_execution execution) {
  if (execution == MOEWAY_THREADS) return exec::HostForm::kThreads;
  return execution == MOEWAY_LANES ? exec::HostForm::kLanes : exec::HostForm::kFibers;
}

}  // namespace

class AllToAll::Watch final : public exec::PeerWatch {
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

AllToAll::AllToAll(std::shared_ptr<Communicator> communicator, const Plan& plan)
    : communicator_(std::move(communicator)), plan_(plan), id_(next_object_id()) {}

AllToAll::~AllToAll() { close(); }

Result<std::unique_ptr<AllToAll>> AllToAll::create(std::shared_ptr<Communicator> communicator,
                                                   const moeway_all_to_all_config& config, const Hooks& hooks) {
  Collective& collective = communicator->collective();
  Result<Plan> plan = make_plan(config, communicator->rank(), communicator->size());
  Status ready = plan.status();
  if (const char* missing = launch::missing_instructions(); ready.ok() && missing != nullptr) {
    ready = error(MOEWAY_UNAVAILABLE, "this processor lacks {}", missing);
  }
  // Every rank takes part in every step, whatever it has found, so that all of them hear of it.
  if (Status s = collective.agree(ready, communicator->deadline()); !s.ok()) return s;
  if (Status s = compare_configs(config, collective, communicator->deadline()); !s.ok()) return s;
  std::unique_ptr<AllToAll> object(new AllToAll(communicator, plan.value()));
  auto heap = communicator->transport().allocate(static_cast<size_t>(plan.value().sizes.heap_bytes), collective,
                                                 communicator->deadline());
  if (!heap.ok()) return heap.status();
  object->heap_ = std::move(heap).value();
  if (Status s = collective.agree(object->allocate(hooks), communicator->deadline()); !s.ok()) return s;
  return object;
}

Status AllToAll::allocate(const Hooks& hooks) {
  const layout::WorkspaceLayout layout{plan_.shape};
  const auto bytes = static_cast<size_t>(plan_.sizes.workspace_bytes);
  try {
    heaps_.resize(static_cast<size_t>(communicator_->size()));
    for (int r = 0; r < communicator_->size(); ++r) heaps_[static_cast<size_t>(r)] = heap_->base(r);
    constexpr size_t kAlign = layout::kLine;
    workspace_memory_.reset(new std::byte[bytes + kAlign]());
    const auto address = reinterpret_cast<uintptr_t>(workspace_memory_.get());
    workspace_ = workspace_memory_.get() + (kAlign - address % kAlign) % kAlign;
    exec::HostGridOptions options;
    options.form = form_of(plan_.config.execution);
    options.num_teams = plan_.config.num_warps;
    options.scratch_bytes = static_cast<size_t>(kernels::direct::dispatch_scratch_bytes(plan_.shape.experts));
    options.perturb_seed = hooks.perturb_seed != 0 ? hooks.perturb_seed : env().perturb;
    if (options.perturb_seed != 0) options.perturb_seed += static_cast<uint64_t>(communicator_->rank()) << 32;
    grid_ = exec::HostGrid::make(options);
    watch_ = std::make_unique<Watch>(heap_->base(communicator_->rank()), layout::HeapLayout{plan_.shape},
                                     communicator_->transport());
  } catch (const std::bad_alloc&) {
    return error(MOEWAY_OUT_OF_MEMORY,
                 "workspace of {} bytes (max_tokens {}, topk {}, {} ranks) and stacks of {} warps cannot be had", bytes,
                 plan_.config.max_tokens, plan_.config.topk, communicator_->size(), plan_.config.num_warps);
  } catch (const std::exception& failure) {
    return error(MOEWAY_OUT_OF_MEMORY, "num_warps {}: {}", plan_.config.num_warps, failure.what());
  }
  num_dispatches_ = hooks.first_epoch;
  for (int team = 0; team < layout::kMaxTeams; ++team)
    std::memcpy(workspace_ + layout.epoch(team), &num_dispatches_, sizeof num_dispatches_);
  return {};
}

kernels::direct::Round AllToAll::round_args(uint64_t dispatch) const {
  return {layout::HeapLayout{plan_.shape}, layout::WorkspaceLayout{plan_.shape}, workspace_, communicator_->rank(),
          static_cast<uint32_t>(num_dispatches_ - dispatch)};
}

void AllToAll::tell_peers(exec::PeerWord word) {
  const layout::HeapLayout layout{plan_.shape};
  for (std::byte* heap : heaps_) {
    // Release; pairs with the acquire in Watch::word: everything this rank has sent comes before it.
    exec::store_release<exec::Scope::kSystem>(
        reinterpret_cast<uint64_t*>(heap + layout.peer_word(communicator_->rank())), static_cast<uint64_t>(word));
  }
}

Status AllToAll::finish_launch(const exec::LaunchControl& control, const char* call, uint64_t dispatch) {
  const auto failure = control.failure();
  if (!failure) return {};
  failure_ = describe(*failure, call, dispatch, communicator_->rank(), control.timeout());
  tell_peers(exec::PeerWord::kFailed);
  return failure_;
}

Status AllToAll::launch_dispatch(launch::Half half, const kernels::direct::DispatchArgs& args, uint64_t dispatch) {
  exec::LaunchControl control(std::chrono::milliseconds(plan_.config.timeout_ms), *watch_);
  launch::dispatch(*grid_, control, half, args, {heaps_.data()});
  return finish_launch(control, half == launch::Half::kSend ? "dispatch_send" : "dispatch_recv", dispatch);
}

Status AllToAll::launch_combine(launch::Half half, const kernels::direct::CombineArgs& args, uint64_t dispatch) {
  exec::LaunchControl control(std::chrono::milliseconds(plan_.config.timeout_ms), *watch_);
  launch::combine(*grid_, control, half, plan_.row_element, plan_.output_element, args, {heaps_.data()});
  return finish_launch(control, half == launch::Half::kSend ? "combine_send" : "combine_recv", dispatch);
}

AllToAll::RoundState& AllToAll::begin_round(const moeway_dispatch_input& input) {
  ++num_dispatches_;
  RoundState& round = rounds_[num_dispatches_ % layout::kEpochs];
  round = {num_dispatches_, Stage::kSent, static_cast<int32_t>(input.x.shape[0]), false};
  return round;
}

Result<moeway_routing> AllToAll::dispatch_send(const moeway_dispatch_input& input) {
  if (Status s = check_may_send(); !s.ok()) return s;
  if (Status s = check_input(input); !s.ok()) return s;
  kernels::direct::DispatchArgs args{};
  args.round = round_args(num_dispatches_);
  fill_input(input, &args);
  const RoundState& round = begin_round(input);
  if (Status s = launch_dispatch(launch::Half::kSend, args, round.dispatch); !s.ok()) return s;
  return moeway_routing{id_, round.dispatch};
}

Status AllToAll::dispatch_recv(moeway_routing routing, const moeway_dispatch_output& output) {
  Result<RoundState*> found = find(routing);
  if (!found.ok()) return found.status();
  RoundState& round = *found.value();
  if (Status s = check_stage(round, Stage::kSent, "dispatch_recv"); !s.ok()) return s;
  if (Status s = check_output(output); !s.ok()) return s;
  kernels::direct::DispatchArgs args{};
  args.round = round_args(round.dispatch);
  fill_output(output, &args);
  if (Status s = launch_dispatch(launch::Half::kRecv, args, round.dispatch); !s.ok()) return s;
  round.stage = Stage::kReceived;
  round.in_heap = !args.out.given();
  return {};
}

Result<moeway_routing> AllToAll::dispatch(const moeway_dispatch_input& input, const moeway_dispatch_output& output) {
  if (Status s = check_may_send(); !s.ok()) return s;
  if (Status s = check_input(input); !s.ok()) return s;
  if (Status s = check_output(output); !s.ok()) return s;
  kernels::direct::DispatchArgs args{};
  args.round = round_args(num_dispatches_);
  fill_input(input, &args);
  fill_output(output, &args);
  RoundState& round = begin_round(input);
  if (Status s = launch_dispatch(launch::Half::kBoth, args, round.dispatch); !s.ok()) return s;
  round.stage = Stage::kReceived;
  round.in_heap = !args.out.given();
  return moeway_routing{id_, round.dispatch};
}

Status AllToAll::combine_send(moeway_routing routing, const moeway_tensor& rows) {
  Result<RoundState*> found = find(routing);
  if (!found.ok()) return found.status();
  RoundState& round = *found.value();
  if (Status s = check_stage(round, Stage::kReceived, "combine_send"); !s.ok()) return s;
  if (Status s = check_rows(rows); !s.ok()) return s;
  kernels::direct::CombineArgs args{round_args(round.dispatch), plan_.config.hidden, rows_view(rows), {}, {}};
  if (Status s = launch_combine(launch::Half::kSend, args, round.dispatch); !s.ok()) return s;
  round.stage = Stage::kResultsSent;
  return {};
}

Status AllToAll::combine_recv(moeway_routing routing, const moeway_tensor* topk_weights, const moeway_tensor& y) {
  Result<RoundState*> found = find(routing);
  if (!found.ok()) return found.status();
  RoundState& round = *found.value();
  if (Status s = check_stage(round, Stage::kResultsSent, "combine_recv"); !s.ok()) return s;
  if (Status s = check_results(round, topk_weights, y); !s.ok()) return s;
  kernels::direct::CombineArgs args{round_args(round.dispatch), plan_.config.hidden, {}, {}, matrix_view(y)};
  if (topk_weights != nullptr) args.topk_weights = matrix_view(*topk_weights);
  if (Status s = launch_combine(launch::Half::kRecv, args, round.dispatch); !s.ok()) return s;
  round.stage = Stage::kDone;
  return {};
}

Status AllToAll::combine(moeway_routing routing, const moeway_tensor& rows, const moeway_tensor* topk_weights,
                         const moeway_tensor& y) {
  Result<RoundState*> found = find(routing);
  if (!found.ok()) return found.status();
  RoundState& round = *found.value();
  if (Status s = check_stage(round, Stage::kReceived, "combine"); !s.ok()) return s;
  if (Status s = check_rows(rows); !s.ok()) return s;
  if (Status s = check_results(round, topk_weights, y); !s.ok()) return s;
  kernels::direct::CombineArgs args{
      round_args(round.dispatch), plan_.config.hidden, rows_view(rows), {}, matrix_view(y)};
  if (topk_weights != nullptr) args.topk_weights = matrix_view(*topk_weights);
  if (Status s = launch_combine(launch::Half::kBoth, args, round.dispatch); !s.ok()) return s;
  round.stage = Stage::kDone;
  return {};
}

moeway_all_to_all_stats AllToAll::stats() const {
  moeway_all_to_all_stats stats{};
  stats.struct_size = sizeof(stats);
  if (closed_) return stats;
  layout::Counters counters;
  std::memcpy(&counters, workspace_ + layout::WorkspaceLayout{plan_.shape}.counters(), sizeof counters);
  stats.num_dispatches = static_cast<int64_t>(num_dispatches_);
  stats.tokens_sent = static_cast<int64_t>(counters.tokens_sent);
  stats.routes_sent = static_cast<int64_t>(counters.routes_sent);
  stats.rows_received = static_cast<int64_t>(counters.rows_received);
  stats.dispatch_sent_bytes = stats.tokens_sent * (plan_.shape.row_bytes + plan_.shape.scales_bytes);
  stats.combine_sent_bytes = static_cast<int64_t>(counters.results_sent) * plan_.shape.result_bytes;
  return stats;
}

void AllToAll::close() {
  if (closed_) return;
  closed_ = true;
  if (!heaps_.empty() && failure_.ok()) tell_peers(exec::PeerWord::kClosed);
  failure_ = error(MOEWAY_WRONG_STATE, "the object is closed");
  grid_.reset();
  watch_.reset();
  workspace_memory_.reset();
  heaps_.clear();
  heap_.reset();
  communicator_.reset();
}

}  // namespace moeway::core
