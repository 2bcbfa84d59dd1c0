// Dispatch and combine of one shape on one rank: checks a call, fills the kernels' arguments, launches, and keeps track
// of rounds.
#pragma once

#include <moeway/c_api.h>
#include <moeway/status.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/owner_process.h"
#include "core/communicator.h"
#include "core/executor.h"
#include "core/plan.h"
#include "core/tensors.h"
#include "layout/heap_layout.h"
#include "transport/heap.h"

namespace moeway::core {

class AllToAll {
 public:
  // Collective; see moeway_all_to_all_create.
  static Result<std::unique_ptr<AllToAll>> create(const std::shared_ptr<Communicator>& communicator,
                                                  const moeway_all_to_all_config& config, const Hooks& hooks = {});
  // What a rank does in its place when its caller has made a mistake: all ranks' create() then fails with `mistake`, or
  // with that of a lower rank. Gives what they hear.
  static Status refuse(Communicator& communicator, const Status& mistake);
  ~AllToAll();
  AllToAll(const AllToAll&) = delete;
  AllToAll& operator=(const AllToAll&) = delete;

  Result<moeway_routing> dispatch_send(const moeway_dispatch_input& input);
  Status dispatch_recv(moeway_routing routing, const moeway_dispatch_output& output);
  Result<moeway_routing> dispatch(const moeway_dispatch_input& input, const moeway_dispatch_output& output);
  Status combine_send(moeway_routing routing, const moeway_tensor& rows);
  // `add`: onto what y holds.
  Status combine_recv(moeway_routing routing, const moeway_tensor* topk_weights, const moeway_tensor& y, bool add);
  Status combine(moeway_routing routing, const moeway_tensor& rows, const moeway_tensor* topk_weights,
                 const moeway_tensor& y, bool add);
  Status dispatch_view(moeway_routing routing, moeway_tensor* x, moeway_tensor* scales);
  // The failure that ended the object's use, or that it is closed. Looks at what kernels have reported since.
  Status status();
  Status set_stream(void* stream);
  Result<moeway_all_to_all_stats> stats() const;
  // One a rank.
  Result<std::vector<moeway_peer_stats>> peer_stats() const;
  int num_ranks() const { return plan_.shape.num_ranks(); }
  void close();
  // Whether this is a fork's copy, which may be let go and no more.
  bool is_forks_copy() const { return !owner_.is_this(); }

 private:
  enum class Stage { kNone, kSent, kReceived, kResultsSent, kDone };
  struct RoundState {
    uint64_t dispatch = 0;  // Its number, from 1.
    Stage stage = Stage::kNone;
    int32_t num_tokens = 0;
    bool in_heap = false;    // token_major, not copied.
    int32_t unweighted = 0;  // Its combine; from combine_send on.
  };

  AllToAll(std::shared_ptr<Communicator> communicator, const Plan& plan);

  Status check_may_send();
  // The round of a handle, if it is still known.
  Result<RoundState*> find(moeway_routing routing);
  // The same, if the round's latest phase is the one that `phase` comes after.
  Result<RoundState*> find_at(moeway_routing routing, Stage expected, const char* phase);
  Status on_my_device(std::initializer_list<NamedTensor> tensors) const;
  Status check_input(const moeway_dispatch_input& input) const;
  Status check_payload(const moeway_dispatch_input& input) const;
  Status check_routing(const moeway_dispatch_input& input) const;
  Status bad_num_tokens(const char* what, int32_t given, int64_t rows) const;
  Status check_output(const moeway_dispatch_output& output) const;
  Status check_received_tensors(const moeway_dispatch_output& output) const;
  Status check_rows(moeway_routing routing, const moeway_tensor& rows) const;
  Status check_results(moeway_routing routing, const RoundState& round, const moeway_tensor* topk_weights,
                       const moeway_tensor& y) const;

  void fill_input(const moeway_dispatch_input& input, kernels::direct::DispatchArgs* args);
  void fill_output(const moeway_dispatch_output& output, kernels::direct::DispatchArgs* args);
  kernels::direct::Round round_args(uint64_t dispatch) const;
  kernels::direct::DispatchArgs dispatch_args(uint64_t dispatch) const;
  kernels::direct::CombineArgs combine_args(moeway_routing routing) const;
  Status launch_dispatch(launch::Half half, const kernels::direct::DispatchArgs& args);
  Status launch_combine(launch::Half half, const kernels::direct::CombineArgs& args);
  // Ends the object's use.
  Status fail(Status failure);
  RoundState& begin_round(const moeway_dispatch_input& input);
  void mark_received(const moeway_dispatch_output& output, RoundState* round) const;

  std::shared_ptr<Communicator> communicator_;
  Plan plan_;
  uint64_t id_;  // Unique in the process: handles of other objects are told apart.
  std::unique_ptr<transport::SymmetricHeap> heap_;
  std::unique_ptr<Executor> executor_;
  uint64_t num_dispatches_ = 0;
  std::array<RoundState, layout::kEpochs> rounds_;
  Status failure_;
  bool closed_ = false;
  const OwnerProcess owner_;
};

}  // namespace moeway::core
