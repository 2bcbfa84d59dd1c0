// Dispatch and combine of one shape. Shapes, units, failure and lifetime of each call: the C function of the same name
// in c_api.h.
#pragma once

#include <moeway/communicator.h>
#include <moeway/routing.h>
#include <moeway/status.h>
#include <moeway/tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace moeway {

using Layout = ::moeway_layout;
inline constexpr Layout kExpertPadded = MOEWAY_EXPERT_PADDED;
inline constexpr Layout kExpertPacked = MOEWAY_EXPERT_PACKED;
inline constexpr Layout kTokenMajor = MOEWAY_TOKEN_MAJOR;

using Scales = ::moeway_scales;
inline constexpr Scales kScalesNone = MOEWAY_SCALES_NONE;
inline constexpr Scales kScalesF32 = MOEWAY_SCALES_F32;
inline constexpr Scales kScalesUe8m0 = MOEWAY_SCALES_UE8M0;
inline constexpr Scales kScalesBytes = MOEWAY_SCALES_BYTES;

using Quantise = ::moeway_quantise;
inline constexpr Quantise kQuantiseNone = MOEWAY_QUANTISE_NONE;
inline constexpr Quantise kQuantiseLargest = MOEWAY_QUANTISE_LARGEST;
inline constexpr Quantise kQuantisePowerOfTwo = MOEWAY_QUANTISE_POWER_OF_TWO;

using Weights = ::moeway_weights;
inline constexpr Weights kWeightsAtDispatch = MOEWAY_WEIGHTS_AT_DISPATCH;
inline constexpr Weights kWeightsAtCombine = MOEWAY_WEIGHTS_AT_COMBINE;

using Overflow = ::moeway_overflow;
inline constexpr Overflow kOverflowError = MOEWAY_OVERFLOW_ERROR;
inline constexpr Overflow kOverflowDrop = MOEWAY_OVERFLOW_DROP;

using Execution = ::moeway_execution;
inline constexpr Execution kFibers = MOEWAY_FIBERS;
inline constexpr Execution kThreads = MOEWAY_THREADS;
inline constexpr Execution kLanes = MOEWAY_LANES;

// Filled with the defaults that c_api.h gives; set at least num_experts, topk, hidden and max_tokens.
struct AllToAllConfig : moeway_all_to_all_config {
  AllToAllConfig() : moeway_all_to_all_config{} { moeway_all_to_all_config_init(this); }
};

using AllToAllSizes = ::moeway_all_to_all_sizes;
using AllToAllStats = ::moeway_all_to_all_stats;
using PeerStats = ::moeway_peer_stats;

struct DispatchInput : moeway_dispatch_input {
  DispatchInput() : moeway_dispatch_input{} { moeway_dispatch_input_init(this); }
};
struct DispatchOutput : moeway_dispatch_output {
  DispatchOutput() : moeway_dispatch_output{} { moeway_dispatch_output_init(this); }
};

// What `rank` of `num_ranks` needs for this config. Allocates nothing.
inline Result<AllToAllSizes> all_to_all_sizes(const AllToAllConfig& config, int rank, int num_ranks) {
  AllToAllSizes sizes;
  moeway_all_to_all_sizes_init(&sizes);
  if (Status status = Status::from_c(moeway_all_to_all_get_sizes(&config, rank, num_ranks, &sizes)); !status.ok())
    return status;
  return sizes;
}

// Move-only; closes itself when destroyed. Use by one thread at a time. May outlive its communicator's close().
class AllToAll {
 public:
  // Collective. All memory is taken here. Fails on all ranks, with the same reason, if it fails on one.
  static Result<AllToAll> create(Communicator& communicator, const AllToAllConfig& config) {
    moeway_all_to_all* handle = nullptr;
    Status status = Status::from_c(moeway_all_to_all_create(communicator.get(), &config, &handle));
    if (!status.ok()) return status;
    AllToAll all_to_all;
    all_to_all.handle_.reset(handle);
    return Result<AllToAll>(std::move(all_to_all));
  }

  Result<Routing> dispatch_send(const DispatchInput& input) {
    Routing routing{};
    if (Status status = Status::from_c(moeway_dispatch_send(get(), &input, &routing)); !status.ok()) return status;
    return routing;
  }
  Status dispatch_recv(Routing routing, const DispatchOutput& output) {
    return Status::from_c(moeway_dispatch_recv(get(), routing, &output));
  }
  Status combine_send(Routing routing, const Tensor& rows) {
    return Status::from_c(moeway_combine_send(get(), routing, &rows));
  }
  // With weights at dispatch.
  Status combine_recv(Routing routing, const Tensor& y) {
    return Status::from_c(moeway_combine_recv(get(), routing, nullptr, &y));
  }
  // With weights at combine.
  Status combine_recv(Routing routing, const Tensor& topk_weights, const Tensor& y) {
    return Status::from_c(moeway_combine_recv(get(), routing, &topk_weights, &y));
  }

  // Onto what y holds.
  Status combine_recv_add(Routing routing, const Tensor& y) {
    return Status::from_c(moeway_combine_recv_add(get(), routing, nullptr, &y));
  }
  Status combine_recv_add(Routing routing, const Tensor& topk_weights, const Tensor& y) {
    return Status::from_c(moeway_combine_recv_add(get(), routing, &topk_weights, &y));
  }

  Result<Routing> dispatch(const DispatchInput& input, const DispatchOutput& output) {
    Routing routing{};
    if (Status status = Status::from_c(moeway_dispatch(get(), &input, &output, &routing)); !status.ok()) return status;
    return routing;
  }
  Status combine(Routing routing, const Tensor& rows, const Tensor& y) {
    return Status::from_c(moeway_combine(get(), routing, &rows, nullptr, &y));
  }
  Status combine(Routing routing, const Tensor& rows, const Tensor& topk_weights, const Tensor& y) {
    return Status::from_c(moeway_combine(get(), routing, &rows, &topk_weights, &y));
  }

  Status combine_add(Routing routing, const Tensor& rows, const Tensor& y) {
    return Status::from_c(moeway_combine_add(get(), routing, &rows, nullptr, &y));
  }
  Status combine_add(Routing routing, const Tensor& rows, const Tensor& topk_weights, const Tensor& y) {
    return Status::from_c(moeway_combine_add(get(), routing, &rows, &topk_weights, &y));
  }

  // token_major without a copy; `scales` may be null.
  Status dispatch_view(Routing routing, Tensor* x, Tensor* scales = nullptr) {
    return Status::from_c(moeway_dispatch_view(get(), routing, x, scales));
  }

  // A cudaStream_t for later calls; CPU ranks ignore it.
  Status set_stream(void* stream) { return Status::from_c(moeway_all_to_all_set_stream(get(), stream)); }
  Status status() const { return Status::from_c(moeway_all_to_all_status(get())); }
  Result<AllToAllStats> stats() const {
    AllToAllStats stats{};
    moeway_all_to_all_stats_init(&stats);
    if (Status status = Status::from_c(moeway_all_to_all_get_stats(get(), &stats)); !status.ok()) return status;
    return stats;
  }
  // One a rank; `num_ranks` as the communicator has.
  Result<std::vector<PeerStats>> peer_stats(int num_ranks) const {
    std::vector<PeerStats> stats(static_cast<size_t>(num_ranks > 0 ? num_ranks : 0));
    for (PeerStats& peer : stats) moeway_peer_stats_init(&peer);
    const Status status = Status::from_c(moeway_all_to_all_get_peer_stats(get(), num_ranks, stats.data()));
    if (!status.ok()) return status;
    return stats;
  }
  Status close() { return Status::from_c(moeway_all_to_all_close(get())); }
  moeway_all_to_all* get() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(moeway_all_to_all* all_to_all) const { moeway_all_to_all_destroy(all_to_all); }
  };
  std::unique_ptr<moeway_all_to_all, Destroy> handle_;
};

}  // namespace moeway
