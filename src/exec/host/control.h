// What the teams of a host launch share about failure: the limit of waits, the first failure, and how to ask after a
// peer.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "base/deadline.h"
#include "exec/atomic.h"
#include "exec/report.h"
#include "exec/team.h"
#include "exec/wait_clock.h"

namespace moeway::exec {

// How a wait learns that its peer will not come. Thread-safe.
class PeerWatch {
 public:
  virtual ~PeerWatch() = default;
  virtual PeerWord word(int peer) const = 0;  // Acquires what the peer wrote before it.
  virtual bool lost(int peer) const = 0;
};

// One per launch.
class LaunchControl {
 public:
  LaunchControl(std::chrono::milliseconds timeout, const PeerWatch& watch, const WaitClock& waits = {})
      : timeout_(timeout), watch_(watch), waits_(waits) {}

  // Only the first failure is kept: the others follow from it.
  void fail(const Failure& failure) {
    if (claim_relaxed<Scope::kDevice>(&claimed_, 0, 1)) {
      failure_ = failure;
      store_release<Scope::kDevice>(&failed_, 1);  // Pairs with the acquire in failure(): makes failure_ visible.
    }
  }
  // Relaxed: only tells other teams to end; they do not read the report.
  bool failed() const { return load_relaxed<Scope::kDevice>(&failed_) != 0; }
  std::optional<Failure> failure() const {
    if (load_acquire<Scope::kDevice>(&failed_) == 0) return std::nullopt;
    return failure_;
  }

  std::chrono::milliseconds timeout() const { return timeout_; }
  const PeerWatch& watch() const { return watch_; }
  const WaitClock& waits() const { return waits_; }

 private:
  std::chrono::milliseconds timeout_;
  const PeerWatch& watch_;
  const WaitClock waits_;
  int32_t claimed_ = 0;
  int32_t failed_ = 0;
  Failure failure_{};
};

// A wait that has not been satisfied at once. Asks for the time and after the peer only now and then: most waits are
// short.
class SlowWait {
 public:
  explicit SlowWait(LaunchControl& control) : control_(control) {}

  // After an unready look: whether to go on. `ready` is asked once more before a peer is given up, since its last
  // signals may have come between the look and the question after the peer.
  template <class Ready, class Blame>
  bool go_on(Ready ready, Blame blame) {
    if (control_.failed()) return false;
    if (++tries_ % kTriesPerCheck != 0) return true;
    const Missing missing = blame();
    count();
    peer_ = missing.site.peer;
    FailureKind kind = FailureKind::kNone;
    if (tries_ == kTriesPerCheck) deadline_ = Deadline::after(control_.timeout());
    if (deadline_.passed()) kind = FailureKind::kDeadline;
    const PeerWord word = control_.watch().word(missing.site.peer);
    if (word == PeerWord::kFailed) kind = FailureKind::kPeerFailed;
    if (word == PeerWord::kClosed) kind = FailureKind::kPeerClosed;
    if (kind == FailureKind::kNone && tries_ % kTriesPerLifeCheck == 0 && control_.watch().lost(missing.site.peer)) {
      kind = FailureKind::kPeerLost;
    }
    if (missing.seen > missing.expected) kind = FailureKind::kOutOfStep;
    if (kind == FailureKind::kNone || ready()) return true;
    control_.fail({kind, missing.site, missing.expected, missing.seen});
    return false;
  }
  uint32_t tries() const { return tries_; }
  // What was waited for has come.
  void done() {
    if (tries_ >= kTriesPerCheck) count();
  }

 private:
  // A check costs about as much as ten reads; after kSpins tries each read is followed by a sleep, so checks are
  // frequent enough.
  static constexpr uint32_t kTriesPerCheck = 16;
  static constexpr uint32_t kTriesPerLifeCheck = 64;
  // Counts the time since the check before for the peer that was to blame then.
  void count() {
    if (!control_.waits().counts()) return;
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    const auto now = static_cast<uint64_t>(std::chrono::nanoseconds(since).count());
    if (peer_ >= 0) control_.waits().add(peer_, counted_, now);
    counted_ = now;
  }

  LaunchControl& control_;
  uint32_t tries_ = 0;
  int peer_ = -1;
  uint64_t counted_ = 0;
  Deadline deadline_ = Deadline::never();  // Set at the first check: reading the clock costs more than most waits.
};

}  // namespace moeway::exec
