#include "exec/host/backoff.h"

#include <sched.h>

#include <chrono>
#include <thread>

#include "exec/host/team.h"

namespace moeway::exec {

void back_off(uint32_t tries) {
  constexpr uint32_t kSpins = 16, kYields = 48, kShortSleeps = 200;
  if (tries < kSpins) return;
  if (tries < kYields) {
    sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(tries < kShortSleeps ? 20 : 100));
  }
}

std::chrono::microseconds Perturbation::next() {
  // xorshift64: never 0 from a seed that is not 0.
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  const uint64_t draw = state_ >> 32;
  if (draw % 64 == 0) return std::chrono::microseconds(draw / 64 % 400);
  if (draw % 8 == 0) return std::chrono::microseconds(1);
  return std::chrono::microseconds(0);
}

void HostTeam::perturb() const {
  if (!state_.perturbation.active() || lane_ != 0) return;
  const std::chrono::microseconds stop = state_.perturbation.next();
  if (stop.count() == 0) return;
  scheduler_.pause(1);
  if (stop.count() > 1) std::this_thread::sleep_for(stop);
}

}  // namespace moeway::exec
