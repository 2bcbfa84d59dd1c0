// The host form of the execution contract (exec/team.h). One type for thread per warp, fiber per warp and 32 lanes as
// fibers: they differ in the number of lanes and in what the Scheduler does when a lane has to wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "exec/host/control.h"
#include "exec/team.h"

namespace moeway::exec {

// Lets others run while a lane waits.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // Returns when all lanes of `team` have called it.
  virtual void meet(int team) = 0;
  // A lane of a wait found its condition unmet, for the `tries`-th time.
  virtual void pause(uint32_t tries) = 0;
};

// Random sleeps and hand-overs at every step, from a seed, so that tests see orders that a quiet machine never shows.
class Perturbation {
 public:
  explicit Perturbation(uint64_t seed) : state_(seed) {}
  bool active() const { return state_ != 0; }
  // How long to stop here: mostly not at all.
  std::chrono::microseconds next();

 private:
  uint64_t state_;  // 0: off.
};

inline constexpr int kMaxLanes = 32;

// What the lanes of a team share.
struct alignas(64) TeamState {
  std::byte* scratch = nullptr;
  Perturbation perturbation{0};
  alignas(16) std::array<std::byte, 64> broadcast{};
  std::array<uint64_t, kMaxLanes> partial{};
};

class HostTeam {
 public:
  // Elements that a lane handles in one piece of a loop over a row: enough for full vector registers.
  static constexpr int kElements = 64;

  HostTeam(int id, int count, int lane, int num_lanes, TeamState& state, Scheduler& scheduler, LaunchControl& control)
      : id_(id),
        count_(count),
        lane_(lane),
        num_lanes_(num_lanes),
        state_(state),
        scheduler_(scheduler),
        control_(control) {}

  int id() const { return id_; }
  int count() const { return count_; }
  std::byte* scratch() const { return state_.scratch; }

  template <class F>
  void lanes(int64_t n, F f) const {
    if (num_lanes_ == 1) {  // A loop of its own, so that the compiler sees the step and can vectorise.
      for (int64_t i = 0; i < n; ++i) f(i);
    } else {
      for (int64_t i = lane_; i < n; i += num_lanes_) f(i);
    }
  }

  void copy(void* dst, const void* src, int64_t bytes) const {
    perturb();
    if (num_lanes_ == 1) {
      if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
      return;
    }
    constexpr int64_t kPiece = 16;
    lanes((bytes + kPiece - 1) / kPiece, [&](int64_t i) {
      const int64_t n = bytes - i * kPiece < kPiece ? bytes - i * kPiece : kPiece;
      std::memcpy(static_cast<std::byte*>(dst) + i * kPiece, static_cast<const std::byte*>(src) + i * kPiece,
                  static_cast<size_t>(n));
    });
  }

  void sync() const {
    if (num_lanes_ > 1) scheduler_.meet(id_);
  }

  template <class F>
  auto once(F f) const -> decltype(f()) {
    using R = decltype(f());
    sync();
    perturb();
    if constexpr (std::is_void_v<R>) {
      if (lane_ == 0) f();
      sync();
    } else {
      if (num_lanes_ == 1) return f();
      static_assert(std::is_trivially_copyable_v<R> && sizeof(R) <= sizeof(TeamState::broadcast));
      if (lane_ == 0) {
        const R result = f();
        std::memcpy(state_.broadcast.data(), &result, sizeof(R));
      }
      sync();
      R result;
      std::memcpy(&result, state_.broadcast.data(), sizeof(R));
      sync();  // Everybody has read it: the next once() may write.
      return result;
    }
  }

  template <class F>
  auto sum(int64_t n, F f) const -> decltype(f(int64_t{0})) {
    using R = decltype(f(int64_t{0}));
    static_assert(std::is_integral_v<R>, "sums of floats would depend on the number of lanes");
    R mine{};
    lanes(n, [&](int64_t i) { mine += f(i); });
    if (num_lanes_ == 1) return mine;
    sync();
    state_.partial[static_cast<size_t>(lane_)] = static_cast<uint64_t>(mine);
    sync();
    R all{};
    for (int l = 0; l < num_lanes_; ++l) all += static_cast<R>(state_.partial[static_cast<size_t>(l)]);
    sync();
    return all;
  }

  // Lanes of a host team never run at the same time, so a plain addition is enough.
  template <class T>
  void count_into(T* counter, T n) const {
    *counter += n;
  }

  template <class Read>
  bool wait(const WaitSite& site, uint64_t expected, Read read) const {
    return once([&] {
      SlowWait slow(control_);
      for (;;) {
        const uint64_t seen = read();
        if (seen == expected) return true;
        if (seen > expected) {
          control_.fail({FailureKind::kOutOfStep, site, expected, seen});
          return false;
        }
        if (!slow.go_on(site, expected, seen, read)) return false;
        scheduler_.pause(slow.tries());
      }
    });
  }

  void fail(const Failure& failure) const {
    once([&] { control_.fail(failure); });
  }

 private:
  void perturb() const;

  int id_, count_, lane_, num_lanes_;
  TeamState& state_;
  Scheduler& scheduler_;
  LaunchControl& control_;
};

}  // namespace moeway::exec
