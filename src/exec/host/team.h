// The host form of the execution contract (exec/team.h). One type for thread per warp, fiber per warp and 32 lanes as
// fibers: they differ in the number of lanes and in what the Scheduler does when a lane has to wait.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "exec/host/control.h"
#include "exec/host/piece.h"
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
  std::array<bool, kMaxLanes> ok{};
};

// Values of a spread(): every lane has computed all of them.
template <class T>
struct HostSpread {
  std::array<T, kSpread> values;

  T mine(int i) const { return values[static_cast<size_t>(i)]; }
  T get(int i) const { return values[static_cast<size_t>(i)]; }
};

// A token is held where it lies.
struct HostHeld {
  TokenBytes from;
};

// Rows are read where they lie: asking only remembers them.
template <class Team, class T>
class HostQueue {
 public:
  static constexpr int kAhead = 1;

  explicit HostQueue(const Team& team) : team_(team) {}
  void ask(const T* row, int slice, int num_elements) {
    team_.pieces(slice, num_elements, [&](int, int first, int num) {
      begin_ = row + first;
      num_ = num;
    });
  }
  void skip() {}
  void next(HostPiece<T>* pieces) { pieces[0].load(begin_, num_); }

 private:
  const Team& team_;
  const T* begin_ = nullptr;
  int num_ = 0;
};

class HostTeam {
 public:
  static constexpr int kElements = HostPiece<float>::kElements;
  static constexpr int kPieces = 1;
  static constexpr bool kWholeRows = true;
  template <class T>
  using Piece = HostPiece<T>;
  template <class T>
  using Queue = HostQueue<HostTeam, T>;
  template <class T>
  using Spread = HostSpread<T>;
  using Held = HostHeld;

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

  // ---- Who works
  template <class F, class G>
  bool both(F f, G g) const {
    return all(f(*this)) && all(g(*this));
  }
  template <class F>
  bool each_half(F f) const {
    return all(f(*this));
  }
  const HostTeam& warp() const { return *this; }
  template <class F>
  void warps_in_turn(F f) const {
    f(*this, 0, 1);
  }

  void begin() const {}

  // ---- Lanes
  template <class N, class F>
  void lanes(N n, F f) const {
    perturb();
    if (num_lanes_ == 1) {  // A loop of its own, so that the compiler sees the step and can vectorise.
      for (N i = 0; i < n; ++i) f(i);
    } else {
      for (N i = static_cast<N>(lane_); i < n; i += static_cast<N>(num_lanes_)) f(i);
    }
  }
  template <class F>
  void leader(F f) const {
    perturb();
    if (lane_ == 0) f();
  }
  void sync() const {
    if (num_lanes_ > 1) scheduler_.meet(id_);
  }
  bool all(bool ok) const {
    if (num_lanes_ == 1) return ok;
    state_.ok[static_cast<size_t>(lane_)] = ok;
    sync();
    bool result = true;
    for (int l = 0; l < num_lanes_; ++l) result = result && state_.ok[static_cast<size_t>(l)];
    sync();  // Everybody has read: the next all() may write.
    return result;
  }
  template <class F>
  auto spread(int n, F f) const -> Spread<decltype(f(0))> {
    Spread<decltype(f(0))> result;
    for (int i = 0; i < n; ++i) result.values[static_cast<size_t>(i)] = f(i);
    return result;
  }
  Spread<uint32_t> match(int n, const Spread<int32_t>& values) const {
    return spread(n, [&](int i) {
      uint32_t mask = 0;
      for (int j = 0; j < n; ++j)
        mask |= static_cast<uint32_t>(values.get(i) >= 0 && values.get(j) == values.get(i)) << j;
      return mask;
    });
  }
  template <class F>
  uint32_t ballot(int n, F f) const {
    uint32_t mask = 0;
    for (int i = 0; i < n; ++i) mask |= static_cast<uint32_t>(f(i)) << i;
    return mask;
  }
  template <class F>
  uint32_t unite(int n, F f) const {
    uint32_t mask = 0;
    for (int i = 0; i < n; ++i) mask |= f(i);
    return mask;
  }
  // Relaxed: the host reads it after the launch.
  void add(uint64_t* counter, uint32_t mine) const {
    if (mine != 0) add_relaxed<Scope::kDevice>(counter, uint64_t{mine});
  }
  // Lanes of a host team never run at the same time, so a plain addition is enough.
  void count_into(uint32_t* counter) const { ++*counter; }
  void count_into_few(uint32_t* counter) const { ++*counter; }

  // ---- Waiting
  template <class Ready, class Blame>
  bool poll(Ready ready, Blame blame) const {
    return all(poll_alone(ready, blame));
  }
  template <class Ready, class Blame>
  bool poll_each(int n, Ready ready, Blame blame) const {
    bool come = true;
    for (int i = lane_; i < n && come; i += num_lanes_)
      come = poll_alone([&] { return ready(i); }, [&] { return blame(i); });
    return all(come);
  }
  template <class T, class Read, class ReadyIf, class Blame>
  bool receive(Spread<T>* spread, int n, bool given, Read read, ReadyIf ready, Blame blame) const {
    bool come = true;
    for (int i = 0; i < n && come; ++i) {
      T& value = spread->values[static_cast<size_t>(i)];
      if (given && ready(i, value)) continue;
      const auto here = [&] {
        value = read(i);
        return ready(i, value);
      };
      come = poll_alone(here, [&] { return blame(i); });
    }
    return all(come);
  }
  void fail(const Failure& failure) const { control_.fail(failure); }

  // ---- Tokens
  static int num_chunks(const TokenFormat&) { return 1; }
  void hold(Held* held, const TokenBytes& from, bool, int) const { held->from = from; }
  void hold_quantised(Held* held, const TokenBytes& from, bool, const TokenFormat& format, Scaling scaling,
                      std::byte* room, int) const;
  void put(const Held& held, std::byte* slot, const TokenFormat& format, bool self_validating, int) const;
  void get(Held* held, std::byte* slot, const TokenFormat& format, int) const { held->from = in_slot(slot, format); }
  void look(Held*, const std::byte*, const TokenFormat&, int) const {}
  // Into `room`, of held_bytes(): only words that have been looked at one by one may be read.
  template <class Blame>
  bool take(Held* held, std::byte* slot, const TokenFormat& format, std::byte* room, int, Blame blame) const {
    sync();  // All have read what was taken before.
    bool come = true;
    for (int i = lane_; i < format.num_units() && come; i += num_lanes_) {
      auto* unit = reinterpret_cast<Unit*>(slot) + i;
      Unit value{};
      const auto here = [&] {
        value = load_unit(unit);
        return has_come(value);
      };
      come = poll_alone(here, blame);
      if (!come) break;
      store_unit(unit, all_ones());
      std::memcpy(room + sizeof(Unit) * static_cast<size_t>(i), &value, sizeof(Unit));
    }
    held->from = in_slot(room, format);
    return all(come);
  }
  void place(const Held& held, const TokenBytes& to, bool, int) const {
    copy(to.row, held.from.row);
    copy(to.scales, held.from.scales);
  }
  static int64_t held_bytes(const TokenFormat& format) { return int64_t{16} * format.num_units(); }
  static int64_t quantised_bytes(const TokenFormat& format) { return int64_t{16} * format.num_units(); }

  // ---- Rows
  int slices(int num_elements) const { return (num_elements + slice_elements() - 1) / slice_elements(); }
  template <class F>
  void pieces(int slice, int num_elements, F f) const {
    const int first = slice * slice_elements() + lane_ * kElements, left = num_elements - first;
    f(0, first, left >= kElements ? kElements : left > 0 ? left : 0);
  }

 private:
  int slice_elements() const { return num_lanes_ * kElements; }
  static TokenBytes in_slot(std::byte* slot, const TokenFormat& format) {
    return {{slot, format.row_bytes, 1, 1}, {slot + format.scales_offset(), format.scales_bytes, 1, 1}};
  }
  void copy(const Part& to, const Part& from) const;

  template <class Ready, class Blame>
  bool poll_alone(Ready ready, Blame blame) const {
    perturb();
    SlowWait slow(control_);
    while (!ready()) {
      if (!slow.go_on(ready, blame)) return false;
      scheduler_.pause(slow.tries());
    }
    slow.done();
    return true;
  }
  void perturb() const;

  int id_, count_;
  int lane_, num_lanes_;
  TeamState& state_;
  Scheduler& scheduler_;
  LaunchControl& control_;
};

}  // namespace moeway::exec
