// The CUDA form of the execution contract (exec/team.h): a team is kThreads threads of a block, with a named barrier of
// its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "exec/device_control.h"
#include "exec/team.h"

namespace moeway::exec {

// What the threads of a team share, in shared memory; the team's scratch follows it.
struct alignas(16) CudaTeamState {
  std::byte broadcast[64];
  unsigned long long partial;  // The type that atomicAdd has.
};

template <int kThreads>
class CudaTeam {
 public:
  static_assert(kThreads % 32 == 0 && kThreads >= 32 && kThreads <= 1024);
  // Elements that a thread handles in one piece of a loop over a row: 16 bytes of a 2-byte type.
  static constexpr int kElements = 8;

  // Shared memory of one team, for a launch whose kernels need `scratch_bytes`.
  static constexpr __host__ __device__ size_t shared_bytes(size_t scratch_bytes) {
    return sizeof(CudaTeamState) + (scratch_bytes + 15) / 16 * 16;
  }

  // `shared` is the block's dynamic shared memory.
  __device__ CudaTeam(std::byte* shared, size_t scratch_bytes, const DeviceControl& control)
      : in_block_(static_cast<int>(threadIdx.x) / kThreads),
        lane_(static_cast<int>(threadIdx.x) % kThreads),
        state_(reinterpret_cast<CudaTeamState*>(shared + in_block_ * shared_bytes(scratch_bytes))),
        control_(control) {}

  // Consecutive teams lie in different blocks, so that a little work spreads over the device.
  __device__ int id() const { return in_block_ * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x); }
  __device__ int count() const { return static_cast<int>(gridDim.x * blockDim.x) / kThreads; }
  __device__ std::byte* scratch() const { return reinterpret_cast<std::byte*>(state_ + 1); }

  template <class F>
  __device__ void lanes(int64_t n, F f) const {
    for (int64_t i = lane_; i < n; i += kThreads) f(i);
  }

  __device__ void copy(void* dst, const void* src, int64_t bytes) const {
    const auto both = reinterpret_cast<uintptr_t>(dst) | reinterpret_cast<uintptr_t>(src);
    int64_t done = 0;
    if (both % 16 == 0) {
      done = copy_units<uint4>(dst, src, bytes);
    } else if (both % 4 == 0) {
      done = copy_units<uint32_t>(dst, src, bytes);
    } else if (both % 2 == 0) {
      done = copy_units<uint16_t>(dst, src, bytes);
    }
    auto* to = static_cast<std::byte*>(dst);
    const auto* from = static_cast<const std::byte*>(src);
    lanes(bytes - done, [&](int64_t i) { to[done + i] = from[done + i]; });
  }

  __device__ void sync() const {
    if constexpr (kThreads == 32) {
      __syncwarp();
    } else {
      // Barrier 0 is __syncthreads'. Teams of 64 threads or more are at most 15 in a block that leaves room for it.
      asm volatile("bar.sync %0, %1;" ::"r"(in_block_ + 1), "n"(kThreads) : "memory");
    }
  }

  template <class F>
  __device__ auto once(F f) const -> decltype(f()) {
    using R = decltype(f());
    sync();
    if constexpr (std::is_void_v<R>) {
      if (lane_ == 0) f();
      sync();
    } else {
      static_assert(std::is_trivially_copyable_v<R> && sizeof(R) <= sizeof(CudaTeamState::broadcast));
      auto* shared = reinterpret_cast<R*>(state_->broadcast);
      if (lane_ == 0) *shared = f();
      sync();
      const R result = *shared;
      sync();  // Everybody has read it: the next once() may write.
      return result;
    }
  }

  template <class F>
  __device__ auto sum(int64_t n, F f) const -> decltype(f(int64_t{0})) {
    using R = decltype(f(int64_t{0}));
    static_assert(std::is_integral_v<R>, "sums of floats would depend on the number of lanes");
    R mine{};
    lanes(n, [&](int64_t i) { mine += f(i); });
    once([&] { state_->partial = 0; });
    atomicAdd(&state_->partial, static_cast<unsigned long long>(mine));
    sync();
    const auto all = static_cast<R>(state_->partial);
    sync();
    return all;
  }

  // Relaxed: sync() orders counting and reading.
  __device__ void count_into(uint32_t* counter, uint32_t n) const { atomicAdd(counter, n); }

  template <class Read>
  __device__ bool wait(const WaitSite& site, uint64_t expected, Read read) const {
    return once([&] {
      uint64_t start = 0;
      for (uint32_t tries = 0;; ++tries) {
        uint64_t seen = read();
        if (seen == expected) return true;
        FailureKind kind = FailureKind::kNone;
        if (seen > expected) {
          kind = FailureKind::kOutOfStep;
        } else if (tries % kTriesPerCheck == kTriesPerCheck - 1) {
          if (control_.failed()) return false;
          const uint64_t now = nanoseconds();
          if (start == 0) start = now;
          const PeerWord word = control_.word(site.peer);
          if (word == PeerWord::kFailed) kind = FailureKind::kPeerFailed;
          if (word == PeerWord::kClosed) kind = FailureKind::kPeerClosed;
          if (kind == FailureKind::kNone && now - start > control_.timeout_ns) kind = FailureKind::kDeadline;
          // The signal may have come between the read and what was looked at since.
          if (kind != FailureKind::kNone) seen = read();
          if (seen == expected) return true;
        }
        if (kind == FailureKind::kNone) continue;
        control_.fail({kind, site, expected, seen});
        return false;
      }
    });
  }

  __device__ void fail(const Failure& failure) const {
    once([&] { control_.fail(failure); });
  }

 private:
  static constexpr uint32_t kTriesPerCheck = 1024;

  static __device__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }

  // The bytes that whole units cover.
  template <class Unit>
  __device__ int64_t copy_units(void* dst, const void* src, int64_t bytes) const {
    const int64_t n = bytes / static_cast<int64_t>(sizeof(Unit));
    auto* to = static_cast<Unit*>(dst);
    const auto* from = static_cast<const Unit*>(src);
    lanes(n, [&](int64_t i) { to[i] = from[i]; });
    return n * static_cast<int64_t>(sizeof(Unit));
  }

  int in_block_, lane_;
  CudaTeamState* state_;
  const DeviceControl& control_;
};

}  // namespace moeway::exec
