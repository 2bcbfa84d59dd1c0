// Where the ranks of a test have their tensors, and how a call is brought to its end: on the host (place_host.cc), or on the
// CUDA devices of this machine (tests/gpu/place_cuda.cc). A program links one of them; the tests are the same.
#pragma once

#include <moeway/moeway.h>

#include <cstddef>
#include <string>
#include <vector>

#include "multi_rank/ranks.h"

namespace moeway::multi_rank::place {

// Whether ranks are on devices.
bool on_devices();
// Whether the ranks that a test asks for as `as` are that here. On devices a program has them all as threads, or all as
// processes (MOEWAY_GPU_RANKS_AS=processes): once it has touched CUDA, no process can be forked from it that does.
As rank_form(As as);
// Before ranks begin as threads: takes what cannot be taken while kernels run.
void prepare();

// The calling thread is rank `rank` of `num_ranks` from here to leave().
void enter(int rank, int num_ranks);
void leave();
// Of the rank that calls.
CommunicatorOptions communicator_options();
// A cudaStream_t, or null.
void* stream();
// The tensor, as one of the calling rank's place.
Tensor here(Tensor tensor);

// What the calls that `object` has made came to: waits for what they have enqueued. `status` is the last call's own.
Status settle(const AllToAll& object, Status status);

// Memory that this process and the devices reach at one address. Never null; give() it back with the same size.
void* take(size_t bytes);
void give(void* memory, size_t bytes);
// As much as one likes, which takes memory only where it is touched; null if it cannot be had. Not while other ranks' calls
// are under way.
void* take_sparse(size_t bytes);
void give_sparse(void* memory, size_t bytes);

template <class T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) {}  // NOLINT(google-explicit-constructor): as the standard's allocators do.
  T* allocate(size_t n) { return static_cast<T*>(take(n * sizeof(T))); }
  void deallocate(T* memory, size_t n) { give(memory, n * sizeof(T)); }
  friend bool operator==(const Allocator&, const Allocator&) { return true; }
};

// Where the rows of a view, a tensor in the library's memory, can be read: where they lie, or in `copy`.
std::byte* readable(const Tensor& view, std::vector<std::byte, Allocator<std::byte>>* copy);

}  // namespace moeway::multi_rank::place

namespace moeway::multi_rank {

// What a call is given.
template <class T>
using Memory = std::vector<T, place::Allocator<T>>;

// An AllToAll whose calls come back when they are done, with what they found: on the host they do so anyway.
class SettledAllToAll : public AllToAll {
 public:
  explicit SettledAllToAll(AllToAll made) : AllToAll(std::move(made)) { (void)set_stream(place::stream()); }

  Result<Routing> dispatch_send(const DispatchInput& input) { return settled(AllToAll::dispatch_send(input)); }
  Status dispatch_recv(Routing routing, const DispatchOutput& output) {
    return settled(AllToAll::dispatch_recv(routing, output));
  }
  Status combine_send(Routing routing, const Tensor& rows) { return settled(AllToAll::combine_send(routing, rows)); }
  Status combine_recv(Routing routing, const Tensor& y) { return settled(AllToAll::combine_recv(routing, y)); }
  Status combine_recv(Routing routing, const Tensor& topk_weights, const Tensor& y) {
    return settled(AllToAll::combine_recv(routing, topk_weights, y));
  }
  Result<Routing> dispatch(const DispatchInput& input, const DispatchOutput& output) {
    return settled(AllToAll::dispatch(input, output));
  }
  Status combine(Routing routing, const Tensor& rows, const Tensor& y) {
    return settled(AllToAll::combine(routing, rows, y));
  }
  Status combine(Routing routing, const Tensor& rows, const Tensor& topk_weights, const Tensor& y) {
    return settled(AllToAll::combine(routing, rows, topk_weights, y));
  }
  Status combine_recv_add(Routing routing, const Tensor& y) { return settled(AllToAll::combine_recv_add(routing, y)); }
  Status combine_recv_add(Routing routing, const Tensor& topk_weights, const Tensor& y) {
    return settled(AllToAll::combine_recv_add(routing, topk_weights, y));
  }
  Status combine_add(Routing routing, const Tensor& rows, const Tensor& y) {
    return settled(AllToAll::combine_add(routing, rows, y));
  }
  Status combine_add(Routing routing, const Tensor& rows, const Tensor& topk_weights, const Tensor& y) {
    return settled(AllToAll::combine_add(routing, rows, topk_weights, y));
  }

 private:
  Status settled(const Status& status) const { return place::settle(*this, status); }
  Result<Routing> settled(const Result<Routing>& routing) const {
    if (const Status status = place::settle(*this, routing.status()); !status.ok()) return status;
    return routing;
  }
};

}  // namespace moeway::multi_rank

// Leaves out, by name, a test of what a device does in another way.
#define MOEWAY_SKIP_ON_DEVICES(why) \
  if (::moeway::multi_rank::place::on_devices()) GTEST_SKIP() << "not on devices: " << (why)
