// Launches on the host: all teams of a rank, in one of three forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "exec/host/team.h"

namespace moeway::exec {

enum class HostForm {
  kFibers,   // A fiber per team, all in the calling thread.
  kThreads,  // A thread per team, kept between launches; team 0 is the calling thread.
  kLanes     // 32 fibers per team, all in the calling thread.
};

struct HostGridOptions {
  HostForm form = HostForm::kFibers;
  int num_teams = 4;
  size_t scratch_bytes = 0;   // For each team.
  uint64_t perturb_seed = 0;  // 0: no random delays.
};

// Memory and threads are taken once, at creation. One launch at a time; any thread may launch.
class HostGrid {
 public:
  using Kernel = FunctionRef<void(const HostTeam&)>;

  // Throws std::bad_alloc or std::system_error if memory or threads cannot be had.
  static std::unique_ptr<HostGrid> make(const HostGridOptions& options);
  virtual ~HostGrid() = default;
  HostGrid(const HostGrid&) = delete;
  HostGrid& operator=(const HostGrid&) = delete;

  // Runs `kernel` on every team and returns when all have ended.
  virtual void launch(Kernel kernel, LaunchControl& control) = 0;

 protected:
  explicit HostGrid(const HostGridOptions& options);
  int num_teams() const { return static_cast<int>(teams_.size()); }
  TeamState& team(int id) { return teams_[static_cast<size_t>(id)]; }

 private:
  std::vector<TeamState> teams_;
  std::vector<std::byte> scratch_;
};

}  // namespace moeway::exec
