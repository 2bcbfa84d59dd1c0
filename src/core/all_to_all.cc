#include "core/all_to_all.h"

#include <atomic>
#include <utility>

#include "base/format.h"
#include "core/agreement.h"
#include "core/device_executor.h"
#include "core/failure.h"
#include "core/tensors.h"
#include "transport/host/free_memory.h"

namespace moeway::core {
namespace {

uint64_t next_object_id() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;  // Relaxed: only has to be unique.
}

}  // namespace

AllToAll::AllToAll(std::shared_ptr<Communicator> communicator, const Plan& plan)
    : communicator_(std::move(communicator)), plan_(plan), id_(next_object_id()) {}

AllToAll::~AllToAll() { close(); }

Status AllToAll::refuse(Communicator& communicator, const Status& mistake) {
  return communicator.collective().agree(mistake, communicator.deadline());
}

Result<std::unique_ptr<AllToAll>> AllToAll::create(const std::shared_ptr<Communicator>& communicator,
                                                   const moeway_all_to_all_config& config, const Hooks& hooks) {
  Collective& collective = communicator->collective();
  // A release between devices waits for all stores before it; slots that tell by themselves need none.
  const bool self_validating = communicator->on_device() || hooks.self_validating;
  Result<Plan> plan = make_plan(config, communicator->rank(), communicator->size(), self_validating);
  // Every rank takes part in every step, whatever it has found, so that all of them hear of it.
  if (Status s = collective.agree(plan.status(), communicator->deadline()); !s.ok()) return s;
  if (Status s = compare_configs(config, collective, communicator->deadline()); !s.ok()) return s;
  std::unique_ptr<AllToAll> object(new AllToAll(communicator, plan.value()));
  // The transport looks after its segments; on a CPU the workspaces come out of the same memory.
  if (!communicator->on_device()) {
    const auto together = static_cast<size_t>(plan.value().sizes.heap_bytes + plan.value().sizes.workspace_bytes);
    if (Status s = transport::check_segments_fit(together, collective, communicator->deadline()); !s.ok()) return s;
  }
  auto heap = communicator->transport().allocate(static_cast<size_t>(plan.value().sizes.heap_bytes), collective,
                                                 communicator->deadline());
  if (!heap.ok()) return heap.status();
  object->heap_ = std::move(heap).value();
  const int rank = communicator->rank();
  transport::Transport& transport = communicator->transport();
  auto executor = communicator->on_device() ? make_device_executor(plan.value(), rank, communicator->device_index(),
                                                                   *object->heap_, transport, hooks)
                                            : make_host_executor(plan.value(), rank, *object->heap_, transport, hooks);
  if (Status s = collective.agree(executor.status(), communicator->deadline()); !s.ok()) return s;
  object->executor_ = std::move(executor).value();
  object->num_dispatches_ = hooks.first_epoch;
  return object;
}

kernels::direct::Round AllToAll::round_args(uint64_t dispatch) const {
  return {layout::HeapLayout{plan_.shape}, layout::WorkspaceLayout{plan_.shape}, executor_->workspace(),
          communicator_->rank(), static_cast<uint32_t>(num_dispatches_ - dispatch)};
}

kernels::direct::DispatchArgs AllToAll::dispatch_args(uint64_t dispatch) const {
  kernels::direct::DispatchArgs args{};
  args.round = round_args(dispatch);
  args.distinct_experts = plan_.config.distinct_experts != 0;
  return args;
}

kernels::direct::CombineArgs AllToAll::combine_args(moeway_routing routing) const {
  kernels::direct::CombineArgs args{};
  args.round = round_args(routing.dispatch);
  args.hidden = static_cast<int32_t>(plan_.config.hidden);
  args.unweighted = routing.unweighted != 0;
  return args;
}

Status AllToAll::fail(Status failure) {
  failure_ = std::move(failure);
  executor_->tell_peers(exec::PeerWord::kFailed);
  return failure_;
}

Status AllToAll::status() {
  if (!failure_.ok()) return failure_;
  if (const auto failure = executor_->failure()) return fail(describe(*failure, communicator_->rank(), plan_.config));
  // What the host cannot read without waiting, the kernel has looked at.
  const uint64_t bad_count = executor_->mistakes()->num_tokens;
  if (bad_count != kernels::direct::kNoBadCount) {
    return fail(bad_num_tokens("num_tokens of an earlier dispatch_send", static_cast<int32_t>(bad_count),
                               static_cast<int32_t>(bad_count >> 32)));
  }
  const uint64_t bad_route = executor_->mistakes()->route;
  if (bad_route != kernels::direct::kNoBadRoute) {
    const auto topk = static_cast<uint64_t>(plan_.config.topk);
    return fail(
        invalid_argument("topk_idx[{}, {}] of an earlier dispatch_send was no expert from 0 to {}, or one that "
                         "its token named twice with distinct_experts set",
                         bad_route / topk, bad_route % topk, plan_.config.num_experts - 1));
  }
  return {};
}

Status AllToAll::set_stream(void* stream) {
  if (!failure_.ok()) return failure_;
  executor_->set_stream(stream);
  return {};
}

Status AllToAll::launch_dispatch(launch::Half half, const kernels::direct::DispatchArgs& args) {
  if (Status s = executor_->dispatch(half, args); !s.ok()) return fail(std::move(s));
  return status();
}

Status AllToAll::launch_combine(launch::Half half, const kernels::direct::CombineArgs& args) {
  if (Status s = executor_->combine(half, args); !s.ok()) return fail(std::move(s));
  return status();
}

AllToAll::RoundState& AllToAll::begin_round(const moeway_dispatch_input& input) {
  ++num_dispatches_;
  RoundState& round = rounds_[num_dispatches_ % layout::kEpochs];
  round = {num_dispatches_, Stage::kSent, static_cast<int32_t>(input.x.shape[0]), false, 0};
  return round;
}

void AllToAll::mark_received(const moeway_dispatch_output& output, RoundState* round) const {
  round->stage = Stage::kReceived;
  round->in_heap = plan_.token_major() && output.x.ndim == 0;
}

Result<moeway_routing> AllToAll::dispatch_send(const moeway_dispatch_input& input) {
  if (Status s = check_may_send(); !s.ok()) return s;
  if (Status s = check_input(input); !s.ok()) return s;
  kernels::direct::DispatchArgs args = dispatch_args(num_dispatches_);
  fill_input(input, &args);
  const RoundState& round = begin_round(input);
  if (Status s = launch_dispatch(launch::Half::kSend, args); !s.ok()) return s;
  return moeway_routing{id_, round.dispatch, 0};
}

Status AllToAll::dispatch_recv(moeway_routing routing, const moeway_dispatch_output& output) {
  Result<RoundState*> found = find_at(routing, Stage::kSent, "dispatch_recv");
  if (!found.ok()) return found.status();
  RoundState& round = *found.value();
  if (Status s = check_output(output); !s.ok()) return s;
  kernels::direct::DispatchArgs args = dispatch_args(round.dispatch);
  fill_output(output, &args);
  if (Status s = launch_dispatch(launch::Half::kRecv, args); !s.ok()) return s;
  mark_received(output, &round);
  return {};
}

Result<moeway_routing> AllToAll::dispatch(const moeway_dispatch_input& input, const moeway_dispatch_output& output) {
  if (Status s = check_may_send(); !s.ok()) return s;
  if (Status s = check_input(input); !s.ok()) return s;
  if (Status s = check_output(output); !s.ok()) return s;
  kernels::direct::DispatchArgs args = dispatch_args(num_dispatches_);
  fill_input(input, &args);
  fill_output(output, &args);
  RoundState& round = begin_round(input);
  if (Status s = launch_dispatch(launch::Half::kBoth, args); !s.ok()) return s;
  mark_received(output, &round);
  return moeway_routing{id_, round.dispatch, 0};
}

Status AllToAll::combine_send(moeway_routing routing, const moeway_tensor& rows) {
  Result<RoundState*> found = find_at(routing, Stage::kReceived, "combine_send");
  if (!found.ok()) return found.status();
  RoundState& round = *found.value();
  if (Status s = check_rows(routing, rows); !s.ok()) return s;
  kernels::direct::CombineArgs args = combine_args(routing);
  args.rows = rows_view(rows);
  if (Status s = launch_combine(launch::Half::kSend, args); !s.ok()) return s;
  round.stage = Stage::kResultsSent;
  round.unweighted = routing.unweighted;
  return {};
}

Status AllToAll::combine_recv(moeway_routing routing, const moeway_tensor* topk_weights, const moeway_tensor& y,
                              bool add) {
  Result<RoundState*> found = find_at(routing, Stage::kResultsSent, "combine_recv");
  if (!found.ok()) return found.status();
  RoundState& round = *found.value();
  if (Status s = check_results(routing, round, topk_weights, y); !s.ok()) return s;
  kernels::direct::CombineArgs args = combine_args(routing);
  args.y = matrix_view(y);
  args.adds_to_y = add;
  if (topk_weights != nullptr) args.topk_weights = matrix_view(*topk_weights);
  if (Status s = launch_combine(launch::Half::kRecv, args); !s.ok()) return s;
  round.stage = Stage::kDone;
  return {};
}

Status AllToAll::combine(moeway_routing routing, const moeway_tensor& rows, const moeway_tensor* topk_weights,
                         const moeway_tensor& y, bool add) {
  Result<RoundState*> found = find_at(routing, Stage::kReceived, "combine");
  if (!found.ok()) return found.status();
  RoundState& round = *found.value();
  if (Status s = check_rows(routing, rows); !s.ok()) return s;
  if (Status s = check_results(routing, round, topk_weights, y); !s.ok()) return s;
  kernels::direct::CombineArgs args = combine_args(routing);
  args.rows = rows_view(rows);
  args.y = matrix_view(y);
  args.adds_to_y = add;
  if (topk_weights != nullptr) args.topk_weights = matrix_view(*topk_weights);
  if (Status s = launch_combine(launch::Half::kBoth, args); !s.ok()) return s;
  round.stage = Stage::kDone;
  return {};
}

Result<moeway_all_to_all_stats> AllToAll::stats() const {
  if (closed_) return failure_;
  moeway_all_to_all_stats stats{};
  stats.struct_size = sizeof(stats);
  const layout::Counters counters = executor_->counters();
  stats.num_dispatches = static_cast<int64_t>(num_dispatches_);
  stats.routes_sent = static_cast<int64_t>(counters.routes_sent);
  stats.rows_received = static_cast<int64_t>(counters.rows_received);
  stats.rows_dropped = static_cast<int64_t>(counters.rows_dropped);
  const Result<std::vector<moeway_peer_stats>> peers = peer_stats();
  for (const moeway_peer_stats& peer : peers.value()) {
    stats.tokens_sent += peer.tokens_sent;
    stats.dispatch_sent_bytes += peer.dispatch_sent_bytes;
    stats.combine_sent_bytes += peer.combine_sent_bytes;
  }
  return stats;
}

Result<std::vector<moeway_peer_stats>> AllToAll::peer_stats() const {
  if (closed_) return failure_;
  const int64_t token_bytes = plan_.shape.row_bytes + plan_.shape.scales_bytes;
  std::vector<moeway_peer_stats> stats;
  for (const layout::PeerCounters& counters : executor_->peer_counters()) {
    moeway_peer_stats peer{};
    peer.struct_size = sizeof(peer);
    peer.tokens_sent = static_cast<int64_t>(counters.tokens_sent);
    peer.tokens_received = static_cast<int64_t>(counters.tokens_received);
    peer.dispatch_sent_bytes = peer.tokens_sent * token_bytes;
    peer.dispatch_received_bytes = peer.tokens_received * token_bytes;
    peer.combine_sent_bytes = static_cast<int64_t>(counters.results_sent) * plan_.shape.result_bytes;
    peer.waited_ns = static_cast<int64_t>(counters.waited_ns);
    stats.push_back(peer);
  }
  return stats;
}

void AllToAll::close() {
  if (closed_) return;
  closed_ = true;
  if (is_forks_copy()) {
    // Devices are out of a fork's reach; what it has of them ends with it.
    if (communicator_->on_device()) (void)executor_.release(), (void)heap_.release();
  } else if (executor_ != nullptr && failure_.ok()) {
    executor_->tell_peers(exec::PeerWord::kClosed);
  }
  failure_ = error(MOEWAY_WRONG_STATE, "the object is closed");
  executor_.reset();
  heap_.reset();
  communicator_.reset();
}

}  // namespace moeway::core
