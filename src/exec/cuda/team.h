// The CUDA form of the execution contract (exec/team.h): a team is kSize threads of a block, with a named barrier of its
// own. A launch's teams are its blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "exec/cuda/piece.h"
#include "exec/cuda/quantise.h"
#include "exec/cuda/queue.h"
#include "exec/device_control.h"
#include "exec/team.h"

namespace moeway::exec {

// Values of a spread(): value i is lane i's.
template <class T>
struct CudaSpread {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 4 == 0);
  T value;

  __device__ T mine(int) const { return value; }
  __device__ T get(int i) const {
    constexpr int kWords = sizeof(T) / 4;
    uint32_t words[kWords];
    memcpy(words, &value, sizeof(T));
#pragma unroll
    for (int w = 0; w < kWords; ++w) words[w] = __shfl_sync(kAllOnes, words[w], i);
    T result;
    memcpy(&result, words, sizeof(T));
    return result;
  }
};

__device__ inline uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__device__ __noinline__ inline void report_failure(const DeviceControl* control, const Failure* failure) {
  control->fail(*failure);
}

// Tries of a poll before the peer and the host's memory are looked at, and between two looks; and the same for the clock,
// by which waits are counted.
inline constexpr uint32_t kTriesPerCheck = 1024;
inline constexpr uint32_t kTriesPerClock = 16;

// What a poll that takes long remembers.
struct SlowPoll {
  uint64_t start;
  uint64_t counted;  // Up to when.
  FailureKind kind;
};

// Whether a poll must end, on all lanes of the warp; asked at every kTriesPerClock-th try. A verdict stands only if what
// the lane waits for has not come the next time either: it may have come before what the verdict is from.
__device__ __noinline__ inline bool given_up(const DeviceControl* control, const Missing* missing, bool waits,
                                             uint32_t tries, SlowPoll* poll) {
  const uint64_t now = nanoseconds();
  if (tries == kTriesPerClock) {
    *poll = {now, now, FailureKind::kNone};
    return false;
  }
  if (blockIdx.x == 0 && control->waits.counts()) {
    const uint32_t waiting = __ballot_sync(kAllOnes, waits);
    if (waits && (waiting & below(static_cast<int>(threadIdx.x % 32))) == 0) {
      control->waits.add(missing->site.peer, poll->counted, now);
    }
    poll->counted = now;
  }
  const uint32_t turn = tries % kTriesPerCheck;
  if (turn > kTriesPerClock || tries < kTriesPerCheck) return false;
  if (turn == 0) {
    if (!waits) return false;
    const PeerWord word = control->word(missing->site.peer);
    if (now - poll->start > control->timeout_ns) poll->kind = FailureKind::kDeadline;
    if (word == PeerWord::kFailed) poll->kind = FailureKind::kPeerFailed;
    if (word == PeerWord::kClosed) poll->kind = FailureKind::kPeerClosed;
    if (missing->seen > missing->expected) poll->kind = FailureKind::kOutOfStep;
    return false;
  }
  if (waits && poll->kind != FailureKind::kNone) {
    control->fail({poll->kind, missing->site, missing->expected, missing->seen});
  }
  return __any_sync(kAllOnes, control->failed());
}

template <int kHeldUnits>
struct CudaHeld {
  Unit unit[kHeldUnits];
};

// kHeld: units of a token that a lane holds.
template <int kSize, int kHeld>
class CudaTeam {
 public:
  static_assert(kSize % 32 == 0 && kSize >= 32 && kSize <= 1024);
  static constexpr int kElements = 8;
  static constexpr int kPieces = 4;
  static constexpr bool kWholeRows = false;
  template <class T>
  using Piece = CudaPiece<T>;
  template <class T>
  using Queue = CudaQueue<CudaTeam, T>;
  template <class T>
  using Spread = CudaSpread<T>;
  using Held = CudaHeld<kHeld>;

  // The whole block; `scratch` is its dynamic shared memory.
  __device__ CudaTeam(std::byte* scratch, const DeviceControl& control)
      : CudaTeam(scratch, control, static_cast<int>(threadIdx.x), static_cast<int>(blockIdx.x),
                 static_cast<int>(gridDim.x), 0) {}

  __device__ int id() const { return id_; }
  __device__ int count() const { return count_; }
  __device__ std::byte* scratch() const { return scratch_; }

  // ---- Who works
  template <class F, class G>
  __device__ bool both(F f, G g) const {
    return all(lane_ < kSize / 2 ? f(half(0, id_, count_)) : g(half(1, id_, count_)));
  }
  template <class F>
  __device__ bool each_half(F f) const {
    const int which = lane_ < kSize / 2 ? 0 : 1;
    return all(f(half(which, which * count_ + id_, 2 * count_)));
  }
  // Consecutive warps lie in different blocks, so that a little work spreads over the device.
  __device__ CudaTeam<32, kHeld> warp() const {
    return {scratch_, control_, lane_ % 32, lane_ / 32 * count_ + id_, kSize / 32 * count_, 0};
  }

  template <class F>
  __device__ void warps_in_turn(F f) const {
    f(warp(), lane_ / 32, kSize / 32);
  }

  // With an overlapping launch (launch/cuda_launch.cuh) a kernel starts while the one before it in the stream ends.
  __device__ void begin() const {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }

  // ---- Lanes
  template <class N, class F>
  __device__ void lanes(N n, F f) const {
    MOEWAY_ROLL
    for (N i = static_cast<N>(lane_); i < n; i += kSize) f(i);
  }
  template <class F>
  __device__ void leader(F f) const {
    if (lane_ == 0) f();
  }
  __device__ void sync() const {
    if constexpr (kSize == 32) {
      __syncwarp();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(barrier_), "n"(kSize) : "memory");
    }
  }
  __device__ bool all(bool ok) const {
    if constexpr (kSize == 32) {
      const bool result = __all_sync(kAllOnes, ok);
      __syncwarp();
      return result;
    } else {
      int result;
      asm volatile(
          "{ .reg .pred p, q; setp.ne.b32 p, %1, 0; barrier.cta.red.and.pred q, %2, %3, p; selp.b32 %0, 1, 0, q; }"
          : "=r"(result)
          : "r"(static_cast<int>(ok)), "r"(barrier_), "n"(kSize)
          : "memory");
      return result != 0;
    }
  }
  template <class F>
  __device__ auto spread(int n, F f) const -> Spread<decltype(f(0))> {
    const int lane = lane_ % 32;
    Spread<decltype(f(0))> result{};
    if constexpr (std::is_same_v<decltype(f(0)), int32_t>) result.value = -1;  // What match() leaves out.
    if (lane < n) result.value = f(lane);
    return result;
  }
  // By shuffles, which do not wait for each other: __match_any_sync takes a turn for each value that occurs.
  __device__ Spread<uint32_t> match(int n, const Spread<int32_t>& values) const {
    constexpr int kAtOnce = 8;
    uint32_t mask = 0;
    MOEWAY_ROLL
    for (int base = 0; base < n; base += kAtOnce) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        mask |= static_cast<uint32_t>(__shfl_sync(kAllOnes, values.value, base + i) == values.value) << (base + i);
    }
    return {values.value < 0 ? 0 : mask};
  }
  template <class F>
  __device__ uint32_t ballot(int n, F f) const {
    const int lane = lane_ % 32;
    return __ballot_sync(kAllOnes, lane < n && f(lane));
  }
  template <class F>
  __device__ uint32_t unite(int n, F f) const {
    const int lane = lane_ % 32;
    return __reduce_or_sync(kAllOnes, lane < n ? f(lane) : 0);
  }
  __device__ void add(uint64_t* counter, uint32_t mine) const {
    const uint32_t sum = __reduce_add_sync(kAllOnes, mine);
    // Relaxed: the host reads it after the launch.
    if (lane_ % 32 == 0 && sum != 0) add_relaxed<Scope::kDevice>(counter, uint64_t{sum});
  }
  // Relaxed: sync() orders counting and reading. Of a constant 1 the compiler makes an increment that takes lanes with the
  // same address together, and those with different ones one after the other: 400 cycles for a warp of them. So here it
  // does not see the 1 (blocks have one dimension),
  __device__ void count_into(uint32_t* counter) const { atomicAdd(counter, blockDim.y); }
  // and here it does.
  __device__ void count_into_few(uint32_t* counter) const { atomicAdd(counter, 1); }

  // ---- Waiting
  template <class Ready, class Blame>
  __device__ bool poll(Ready ready, Blame blame) const {
    bool mine = false;
    SlowPoll slow;
    MOEWAY_ROLL
    for (uint32_t tries = 1;; ++tries) {
      if (!mine) mine = ready();
      if (__all_sync(kAllOnes, mine)) break;
      if (tries % kTriesPerClock != 0) continue;
      Missing missing{};
      if (!mine) missing = blame();
      if (given_up(&control_, &missing, !mine, tries, &slow)) return false;
    }
    __syncwarp();  // What one lane has acquired, all may read.
    return true;
  }
  template <class Ready, class Blame>
  __device__ bool poll_each(int n, Ready ready, Blame blame) const {
    MOEWAY_ROLL
    for (int base = 0; base < n; base += kSize) {
      const int i = base + lane_;
      if (!poll([&] { return i >= n || ready(i); }, [&] { return blame(i); })) return false;
    }
    return true;
  }
  template <class T, class Read, class ReadyIf, class Blame>
  __device__ bool receive(Spread<T>* spread, int n, bool given, Read read, ReadyIf ready, Blame blame) const {
    const int lane = lane_ % 32;
    return poll(
        [&] {
          if (lane >= n) return true;
          if (!given) spread->value = read(lane);
          given = false;
          return ready(lane, spread->value);
        },
        [&] { return blame(lane); });
  }
  __device__ void fail(const Failure& failure) const { report_failure(&control_, &failure); }

  // ---- Tokens
  __device__ int num_chunks(const TokenFormat& format) const {
    return (format.num_units() + kSize * kHeld - 1) / (kSize * kHeld);
  }
  __device__ void hold(Held* held, const TokenBytes& from, bool whole, int chunk) const {
    if (whole) {
      units(from.num_units(), chunk, [&](int j, int u) { held->unit[j] = load_constant(from.unit(u)); });
    } else {
      const TokenBytes copy = from;
      units(from.num_units(), chunk, [&](int j, int u) { held->unit[j] = gather_unit(&copy, u); });
    }
  }
  __device__ void hold_quantised(Held* held, const TokenBytes& from, bool whole, const TokenFormat& format,
                                 Scaling scaling, std::byte* room, int chunk) const {
    quantise_units<kSize>(held->unit, from, whole, chunk * (kSize * kHeld) + lane_, format, scaling, room,
                          [&] { sync(); });
  }
  __device__ void put(const Held& held, std::byte* slot, const TokenFormat& format, bool self_validating,
                      int chunk) const {
    auto* to = reinterpret_cast<Unit*>(slot);
    units(format.num_units(), chunk, [&](int j, int u) {
      if (self_validating)
        store_unit(to + u, sendable(held.unit[j]));
      else
        store_plain(to + u, held.unit[j]);
    });
  }
  __device__ void get(Held* held, const std::byte* slot, const TokenFormat& format, int chunk) const {
    const auto* from = reinterpret_cast<const Unit*>(slot);
    units(format.num_units(), chunk, [&](int j, int u) { held->unit[j] = load_plain(from + u); });
  }
  __device__ void look(Held* held, const std::byte* slot, const TokenFormat& format, int chunk) const {
    const auto* from = reinterpret_cast<const Unit*>(slot);
    units(format.num_units(), chunk, [&](int j, int u) { held->unit[j] = load_unit(from + u); });
  }
  template <class Blame>
  __device__ bool take(Held* held, std::byte* slot, const TokenFormat& format, std::byte*, int chunk,
                       Blame blame) const {
    auto* to = reinterpret_cast<Unit*>(slot);
    bool looked = true;
    const bool come = poll(
        [&] {
          if (!looked) look(held, slot, format, chunk);
          looked = false;
          bool all_come = true;
          units(format.num_units(), chunk, [&](int j, int) { all_come = all_come && has_come(held->unit[j]); });
          return all_come;
        },
        blame);
    if (!come) return false;
    units(format.num_units(), chunk, [&](int, int u) { store_plain(to + u, all_ones()); });
    return true;
  }
  __device__ void place(const Held& held, const TokenBytes& to, bool whole, int chunk) const {
    if (whole) {
      units(to.num_units(), chunk, [&](int j, int u) { store_plain(to.unit(u), held.unit[j]); });
    } else {
      const TokenBytes copy = to;
      units(to.num_units(), chunk, [&](int j, int u) { scatter_unit(&copy, u, held.unit[j]); });
    }
  }
  // Bytes of scratch that a held token takes.
  static __host__ __device__ int64_t held_bytes(const TokenFormat&) { return 0; }
  static __host__ __device__ int64_t quantised_bytes(const TokenFormat& format) {
    return int64_t{16} * units_of(format.scales_bytes);
  }

  // ---- Rows
  static constexpr int kSliceElements = kSize * kPieces * kElements;
  __device__ int slices(int num_elements) const { return (num_elements + kSliceElements - 1) / kSliceElements; }
  template <class F>
  __device__ void pieces(int slice, int num_elements, F f) const {
    const int base = slice * kSliceElements + lane_ * kElements;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int first = base + p * (kSize * kElements), left = num_elements - first;
      f(p, first, left >= kElements ? kElements : left > 0 ? left : 0);
    }
  }

 private:
  template <int, int>
  friend class CudaTeam;

  __device__ CudaTeam(std::byte* scratch, const DeviceControl& control, int lane, int id, int count, int barrier)
      : scratch_(scratch), control_(control), lane_(lane), id_(id), count_(count), barrier_(barrier) {}

  __device__ CudaTeam<kSize / 2, kHeld> half(int which, int id, int count) const {
    return {scratch_, control_, lane_ - which * (kSize / 2), id, count, 1 + which};  // Barrier 0 is the block's.
  }

  // f(j, unit) for the units of the chunk that this lane holds.
  template <class F>
  __device__ void units(int num_units, int chunk, F f) const {
    const int base = chunk * (kSize * kHeld) + lane_;
#pragma unroll
    for (int j = 0; j < kHeld; ++j) {
      if (base + j * kSize < num_units) f(j, base + j * kSize);
    }
  }

  std::byte* scratch_;
  const DeviceControl& control_;
  int lane_, id_, count_, barrier_;
};

}  // namespace moeway::exec
