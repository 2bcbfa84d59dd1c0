// Runs kernels in the host forms, for the bodies in *_test.inc. Another backend defines the same names.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exec/host/grid.h"
#include "kernels/direct/dispatch_scratch.h"
#include "launch/direct_host.h"

namespace kernel_tests {

// How a rank's teams run. Results must not depend on it.
struct Geometry {
  moeway::exec::HostForm form;
  int num_teams;
};

inline constexpr Geometry kGeometries[] = {
    {moeway::exec::HostForm::kFibers, 1},  {moeway::exec::HostForm::kFibers, 4},  {moeway::exec::HostForm::kFibers, 17},
    {moeway::exec::HostForm::kThreads, 1}, {moeway::exec::HostForm::kThreads, 3}, {moeway::exec::HostForm::kLanes, 2},
};

// Whether the host may look at ranks' memory, and write it, while kernels run (faulty_links.h).
inline constexpr bool kLinksReach = true;

// Empty if kernels can run here; else why not.
inline std::string unavailable() { return ""; }

inline std::string name_of(const Geometry& geometry) {
  const char* form = geometry.form == moeway::exec::HostForm::kFibers    ? "Fibers"
                     : geometry.form == moeway::exec::HostForm::kThreads ? "Threads"
                                                                         : "Lanes";
  return form + std::to_string(geometry.num_teams);
}

// Where a test's data lies so that kernels reach it.
template <class T>
using Allocator = std::allocator<T>;

// Peers that live for ever and never fail.
class Alive final : public moeway::exec::PeerWatch {
 public:
  moeway::exec::PeerWord word(int) const override { return moeway::exec::PeerWord::kRunning; }
  bool lost(int) const override { return false; }
};

// One rank's executor.
class Backend {
 public:
  Backend(const Geometry& geometry, const moeway::layout::Shape& shape, uint64_t perturb_seed)
      : grid_(moeway::exec::HostGrid::make({geometry.form, geometry.num_teams, scratch_bytes(shape), perturb_seed})) {}

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  void set_peer_words(const std::byte*, int64_t) {}

  // The failure that the kernel reported, if any.
  std::optional<moeway::exec::Failure> dispatch(moeway::launch::Half half,
                                                const moeway::kernels::direct::DispatchArgs& args,
                                                const moeway::peers::LoadStorePeers& peers) {
    moeway::exec::LaunchControl control(timeout_, alive_);
    moeway::launch::dispatch(*grid_, control, half, args, peers);
    return control.failure();
  }
  std::optional<moeway::exec::Failure> combine(moeway::launch::Half half, moeway::launch::Element rows,
                                               moeway::launch::Element sums,
                                               const moeway::kernels::direct::CombineArgs& args,
                                               const moeway::peers::LoadStorePeers& peers) {
    moeway::exec::LaunchControl control(timeout_, alive_);
    moeway::launch::combine(*grid_, control, half, rows, sums, args, peers);
    return control.failure();
  }

 private:
  static size_t scratch_bytes(const moeway::layout::Shape& shape) {
    return static_cast<size_t>(moeway::kernels::direct::DispatchScratch::bytes<moeway::exec::HostTeam>(shape));
  }

  std::unique_ptr<moeway::exec::HostGrid> grid_;
  std::chrono::milliseconds timeout_{20000};
  Alive alive_;
};

}  // namespace kernel_tests
