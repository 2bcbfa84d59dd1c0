#include "exec/host/grid.h"

#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <thread>

#include "exec/host/backoff.h"
#include "exec/host/fiber.h"
#include "exec/host/float_environment.h"

namespace moeway::exec {
namespace {

constexpr size_t kScratchAlignment = 64;

size_t scratch_stride(const HostGridOptions& options) {
  return (options.scratch_bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// Both fiber forms: one lane a team, or kMaxLanes.
class FiberGrid final : public HostGrid, private Scheduler {
 public:
  FiberGrid(const HostGridOptions& options, int num_lanes)
      : HostGrid(options),
        num_lanes_(num_lanes),
        pool_(options.num_teams * num_lanes),
        meetings_(static_cast<size_t>(num_teams())) {}

  void launch(Kernel kernel, LaunchControl& control) override {
    num_idle_ = 0;
    pool_.run([&](int fiber) {
      const FloatEnvironment environment;
      const int id = fiber / num_lanes_;
      kernel(HostTeam(id, num_teams(), fiber % num_lanes_, num_lanes_, team(id), *this, control));
    });
  }

 private:
  struct Meeting {
    int num_arrived = 0;
    uint64_t number = 0;
  };

  void meet(int id) override {
    Meeting& meeting = meetings_[static_cast<size_t>(id)];
    const uint64_t number = meeting.number;
    if (++meeting.num_arrived == num_lanes_) {
      meeting.num_arrived = 0;
      ++meeting.number;
      num_idle_ = 0;
      return;
    }
    while (meeting.number == number) pool_.hand_over();
  }

  // The core is given away only when every fiber has found nothing to do in a row.
  void pause(uint32_t tries) override {
    if (tries == 1) num_idle_ = 0;
    const int64_t num_waiting =
        std::max(1, pool_.num_running() / num_lanes_);  // One lane of a team waits; the others meet it.
    if (++num_idle_ % num_waiting == 0) back_off(static_cast<uint32_t>(num_idle_ / num_waiting));
    pool_.hand_over();
  }

  int num_lanes_;
  FiberPool pool_;
  std::vector<Meeting> meetings_;
  int64_t num_idle_ = 0;
};

class ThreadGrid final : public HostGrid, private Scheduler {
 public:
  explicit ThreadGrid(const HostGridOptions& options)
      : HostGrid(options), process_(getpid()), start_(num_teams()), end_(num_teams()) {
    try {
      for (int id = 1; id < num_teams(); ++id) threads_.emplace_back([this, id] { serve(id); });
    } catch (...) {  // No more threads are to be had: those that are there wait for the missing ones, and must end.
      const auto num_missing = num_teams() - static_cast<int>(threads_.size());
      (void)start_.arrive(num_missing);
      for (std::thread& thread : threads_) thread.join();
      throw;
    }
  }
  ~ThreadGrid() override {
    if (getpid() != process_) {  // A fork has this object, but not its threads.
      for (std::thread& thread : threads_) thread.detach();
      return;
    }
    kernel_ = nullptr;
    start_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  void launch(Kernel kernel, LaunchControl& control) override {
    kernel_ = &kernel;
    control_ = &control;
    start_.arrive_and_wait();
    run(0);
    end_.arrive_and_wait();
  }

 private:
  void serve(int id) {
    for (;;) {
      start_.arrive_and_wait();
      if (kernel_ == nullptr) return;
      run(id);
      end_.arrive_and_wait();
    }
  }
  void run(int id) {
    const FloatEnvironment environment;
    (*kernel_)(HostTeam(id, num_teams(), 0, 1, team(id), *this, *control_));
  }
  void meet(int) override {}
  void pause(uint32_t tries) override { back_off(tries); }

  const pid_t process_;
  std::barrier<> start_, end_;
  const Kernel* kernel_ = nullptr;  // Null at start_: the threads end.
  LaunchControl* control_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace

HostGrid::HostGrid(const HostGridOptions& options)
    : teams_(static_cast<size_t>(options.num_teams)),
      scratch_(scratch_stride(options) * static_cast<size_t>(options.num_teams) + kScratchAlignment) {
  const auto address = reinterpret_cast<uintptr_t>(scratch_.data());
  std::byte* aligned = scratch_.data() + (kScratchAlignment - address % kScratchAlignment) % kScratchAlignment;
  for (size_t i = 0; i < teams_.size(); ++i) {
    teams_[i].scratch = aligned + i * scratch_stride(options);
    // Each team another stream of delays, none of them 0 unless delays are off.
    if (options.perturb_seed != 0)
      teams_[i].perturbation = Perturbation(options.perturb_seed * 0x9e3779b97f4a7c15u + i + 1);
  }
}

std::unique_ptr<HostGrid> HostGrid::make(const HostGridOptions& options) {
  switch (options.form) {
    case HostForm::kThreads:
      return std::make_unique<ThreadGrid>(options);
    case HostForm::kLanes:
      return std::make_unique<FiberGrid>(options, kMaxLanes);
    case HostForm::kFibers:
      break;
  }
  return std::make_unique<FiberGrid>(options, 1);
}

}  // namespace moeway::exec
