// What the teams of a launch on a device share about failure, and how a wait there learns that its peer will not come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/atomic.h"
#include "exec/compiler.h"
#include "exec/report.h"
#include "exec/wait_clock.h"

namespace moeway::exec {

// Lies where both the device and the host reach it; the host looks after the launch.
struct DeviceReport {
  int32_t claimed;
  int32_t failed;
  Failure failure;
};

// By value with every launch.
struct DeviceControl {
  DeviceReport* report;
  uint64_t timeout_ns;
  // The peers' words about themselves: rank r's is the uint64 at peer_words + r * peer_word_stride.
  const std::byte* peer_words;
  int64_t peer_word_stride;
  WaitClock waits = {};

  // Only the first failure is kept: the others follow from it.
  MOEWAY_FN void fail(const Failure& failure) const {
    if (claim_relaxed<Scope::kDevice>(&report->claimed, 0, 1)) {
      report->failure = failure;
      // Release of system scope; pairs with the host's acquire after the launch: makes the report visible.
      store_release<Scope::kSystem>(&report->failed, 1);
    }
  }
  // Relaxed: only tells other teams to end; they do not read the report.
  MOEWAY_FN bool failed() const { return load_relaxed<Scope::kDevice>(&report->failed) != 0; }
  MOEWAY_FN PeerWord word(int32_t peer) const {
    // Acquire; pairs with the peer's release of its word: makes every signal visible that it sent before.
    return static_cast<PeerWord>(
        load_acquire<Scope::kSystem>(reinterpret_cast<const uint64_t*>(peer_words + peer * peer_word_stride)));
  }
};

}  // namespace moeway::exec
