// One AllToAll of a checked run on one rank: its tensors, its experts, and the steps of its rounds, each value checked.
#pragma once

#include <moeway/moeway.h>

#include <cstdint>
#include <memory>
#include <string>

#include "cli/buffers.h"
#include "cli/check.h"
#include "cli/device/place.h"
#include "cli/experts.h"
#include "cli/mirror.h"
#include "cli/pattern.h"
#include "cli/progress_board.h"
#include "cli/rank_report.h"
#include "cli/routes.h"

namespace moeway::cli {

// The same for all ranks.
struct ObjectJob {
  AllToAllConfig config;
  const Routes* routes = nullptr;
  int64_t rounds = 1;
  uint64_t seed = 0;
};

// Rounds take turns: the first of three calls the one-call forms, the second (a lone round too) is timed: its halves
// start together, after barriers, and the third runs the four phases as the ranks come, since a barrier can hide faults.
enum class RoundKind { kOneCall, kTimed, kFree };
RoundKind round_kind(int64_t round, int64_t num_rounds);

class ObjectRun {
 public:
  // What a round consists of, in this order. Steps of several objects may alternate, in an order that is the same on all
  // ranks. The one-call forms are made in the second step of their half.
  enum Step { kInput, kDispatchSend, kDispatchRecv, kExperts, kCombineSend, kCombineRecv, kCheck, kNumSteps };

  // `communicator` and `place` outlive it. Every `std::string` here is "" or what failed.
  ObjectRun(const ObjectJob& job, Communicator& communicator, Place& place, RankProgress& progress);
  // Makes the object and the tensors. Collective.
  std::string open();
  std::string step(Step step, int64_t round);
  // After the last round: the library's own counters.
  void check_stats();
  // Adds what was moved, checked and found to the report, as of object `index`; the times of timed rounds, and what a rank
  // is, are object 0's.
  void fill(RankReport& report, int index) const;
  Status close() { return all_to_all_.close(); }

 private:
  Status do_step(Step step, int64_t round);
  Status fill_input(int64_t round);
  Status dispatch_send(int64_t round);
  Status dispatch_recv(int64_t round);
  Status run_experts(int64_t round);
  Status combine_send(int64_t round);
  Status combine_recv(int64_t round);
  Status check_round(int64_t round);

  const Batch& batch(int64_t round) const { return job_.routes->batch(round, communicator_.rank()); }
  RoundKind kind(int64_t round) const { return round_kind(round, job_.rounds); }
  Status take(Result<Routing> made);
  Status start_together(int64_t round);
  // After the calls of a half: waits for them, and tells what kernels found wrong. On the host all is done already.
  Status settle();
  // Inputs that a send has read hold poison from then on.
  Status forget_input();
  Status forget_rows();
  template <class Call>
  Status timed(Phase phase, int64_t round, Call call);

  const ObjectJob& job_;
  Communicator& communicator_;
  Place& place_;
  RankProgress& progress_;
  AllToAll all_to_all_;
  std::unique_ptr<Pattern> pattern_;
  std::unique_ptr<Buffers> buffers_;
  std::unique_ptr<Mirror> mirror_;
  std::unique_ptr<Experts> experts_;
  std::unique_ptr<Check> check_;
  Routing routing_{};
  PhaseTimes phase_times_{};
  std::vector<PhaseTimes> times_;
  int64_t rounds_done_ = 0;
  AllToAllStats stats_{};
};

}  // namespace moeway::cli
