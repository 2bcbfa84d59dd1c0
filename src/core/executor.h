// Where an AllToAll's kernels run, with the memory that they reach: its heap, its workspace, and what they report.
#pragma once

#include <moeway/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/plan.h"
#include "exec/report.h"
#include "exec/wait_clock.h"
#include "kernels/direct/combine_args.h"
#include "kernels/direct/dispatch_args.h"
#include "launch/choices.h"
#include "layout/workspace_layout.h"
#include "transport/heap.h"

namespace moeway::core {

// For tests alone.
struct Hooks {
  uint64_t first_epoch = 0;      // Dispatches that count as sent at creation; equal on all ranks.
  uint64_t perturb_seed = 0;     // See exec::Perturbation; 0 takes MOEWAY_PERTURB.
  bool self_validating = false;  // On a CPU too.
};

// One thread at a time. Nothing here is collective and nothing waits for a peer, but for a launch's own waits.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs a launch, or enqueues it; a Status tells that it could not be. What its kernels find wrong is failure()'s.
  virtual Status dispatch(launch::Half half, const kernels::direct::DispatchArgs& args) = 0;
  virtual Status combine(launch::Half half, const kernels::direct::CombineArgs& args) = 0;
  // Where later launches are enqueued: a cudaStream_t. Without meaning on a CPU.
  virtual void set_stream(void* stream) = 0;
  // The first failure that a launch has reported so far.
  virtual std::optional<exec::Failure> failure() const = 0;

  // Tells all ranks something about this one, after everything that it has sent.
  virtual void tell_peers(exec::PeerWord word) = 0;

  virtual std::byte* workspace() const = 0;
  // Where kernels say what is wrong in the caller's arguments.
  virtual kernels::direct::Mistakes* mistakes() = 0;
  // What kernels have counted so far. Waits for none of them.
  virtual layout::Counters counters() const = 0;
  virtual std::vector<layout::PeerCounters> peer_counters() const = 0;
};

// `heap` and `transport` outlive the executor. All memory and all threads are taken here.
Result<std::unique_ptr<Executor>> make_host_executor(const Plan& plan, int rank, const transport::SymmetricHeap& heap,
                                                     const transport::Transport& transport, const Hooks& hooks);

// The counters of waits in a rank's workspace.
inline exec::WaitClock wait_clock(std::byte* workspace, const layout::Shape& shape) {
  const layout::WorkspaceLayout layout{shape};
  auto* counters = reinterpret_cast<layout::Counters*>(workspace + layout.counters());
  auto* peer = reinterpret_cast<layout::PeerCounters*>(workspace + layout.peer_counters(0));
  return {&counters->waited_until, reinterpret_cast<std::byte*>(&peer->waited_ns), sizeof(layout::PeerCounters)};
}

}  // namespace moeway::core
