// The order of phases and the handle that ties them together: what is wrong is refused, and what was under way goes on.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "multi_rank/mistakes.h"

namespace moeway::multi_rank {
namespace {

Case phases_case() {
  Case job = mistakes_case(kLayoutForms[0], kTokenForms[0]);
  job.rounds = 6;
  return job;
}

void run(const Case& job, const std::function<void(Rank&, Job&)>& body) {
  const auto batches = make_batches(job);
  for (const As as : {As::kThreads, As::kProcesses}) {
    expect_runs(job.shape.num_ranks, as, [&](Rank& rank) {
      Job own(rank, job, batches);
      if (own.create()) body(rank, own);
    });
  }
}

void expect_wrong_state(Rank& rank, const Status& status, const std::string& what,
                        const std::vector<std::string>& parts = {}) {
  rank.expect_error(status, MOEWAY_WRONG_STATE, parts, what);
}

// All calls that take a handle. `spare`: a round whose outputs are not needed any more.
void expect_handle_refused(Rank& rank, Job& own, Routing routing, int spare, const std::string& what) {
  AllToAll& object = own.all_to_all();
  const DispatchOutput out = own.make_output(spare);
  Tensor view;
  expect_wrong_state(rank, object.dispatch_recv(routing, out), "dispatch_recv, " + what, {"rout"});
  expect_wrong_state(rank, object.combine_send(routing, own.rows(0)), "combine_send, " + what, {"rout"});
  expect_wrong_state(rank, object.combine_recv(routing, own.y(0)), "combine_recv, " + what, {"rout"});
  expect_wrong_state(rank, object.combine(routing, own.rows(0), own.y(0)), "combine, " + what, {"rout"});
  expect_wrong_state(rank, object.dispatch_view(routing, &view), "dispatch_view, " + what, {"rout"});
}

TEST(Phases, NothingCanBeReceivedBeforeADispatch) {
  run(phases_case(), [](Rank& rank, Job& own) {
    expect_handle_refused(rank, own, Routing{}, 0, "no dispatch yet");
    if (own.dispatch(0)) own.combine(0);
  });
}

TEST(Phases, OutOfOrderIsRefusedAndTheRoundGoesOn) {
  run(phases_case(), [](Rank& rank, Job& own) {
    AllToAll& object = own.all_to_all();
    for (int round = 0; round < 2; ++round) {
      const DispatchInput in = own.make_input(round);
      const DispatchOutput out = own.make_output(round);
      if (!own.dispatch_send(round)) return;
      const Routing routing = own.routing(round);
      expect_wrong_state(rank, object.dispatch_send(in).status(), "dispatch_send after dispatch_send",
                         {"dispatch_recv"});
      expect_wrong_state(rank, object.dispatch(in, out).status(), "dispatch after dispatch_send", {"dispatch_recv"});
      expect_wrong_state(rank, object.combine_send(routing, own.rows(round)), "combine_send after dispatch_send",
                         {"combine_send", "dispatch_recv"});
      expect_wrong_state(rank, object.combine(routing, own.rows(round), own.y(round)), "combine after dispatch_send");
      expect_wrong_state(rank, object.combine_recv(routing, own.y(round)), "combine_recv after dispatch_send");
      if (!own.dispatch_recv(round)) return;
      expect_wrong_state(rank, object.dispatch_recv(routing, out), "dispatch_recv again", {"dispatch_recv"});
      expect_wrong_state(rank, object.combine_recv(routing, own.y(round)), "combine_recv after dispatch_recv",
                         {"combine_recv", "combine_send"});
      if (!own.combine_send(round)) return;
      expect_wrong_state(rank, object.combine_send(routing, own.rows(round)), "combine_send again", {"combine_send"});
      expect_wrong_state(rank, object.combine(routing, own.rows(round), own.y(round)), "combine after combine_send");
      if (!own.combine_recv(round)) return;
      expect_wrong_state(rank, object.combine_recv(routing, own.y(round)), "combine_recv again", {"combine_recv"});
      expect_wrong_state(rank, object.combine(routing, own.rows(round), own.y(round)), "a handle used twice");
    }
  });
}

TEST(Phases, AHandleIsGoodUntilTheSecondNextDispatch) {
  run(phases_case(), [](Rank& rank, Job& own) {
    if (!own.dispatch(0)) return;
    const Routing first = own.routing(0);
    if (!own.dispatch(1) || !own.combine(0) || !own.combine(1)) return;
    expect_wrong_state(rank, own.all_to_all().combine(first, own.rows(0), own.y(0)), "used");
    if (!own.dispatch(2) || !own.dispatch(3)) return;
    expect_handle_refused(rank, own, first, 2, "two dispatches ago");
    if (own.combine(3) && own.dispatch(4)) own.combine(4);
  });
}

TEST(Phases, HandlesOfOtherObjectsAndMadeUpOnesAreRefused) {
  const Case job = phases_case();
  const auto batches = make_batches(job);
  run(job, [&](Rank& rank, Job& own) {
    Job other(rank, job, batches);
    if (!other.create() || !other.dispatch(0) || !own.dispatch(0)) return;
    expect_handle_refused(rank, own, other.routing(0), 1, "of another object");
    Routing future = own.routing(0);
    ++future.dispatch;
    expect_handle_refused(rank, own, future, 1, "of a round to come");
    Routing nowhere = own.routing(0);
    nowhere.object = ~uint64_t{0};
    expect_handle_refused(rank, own, nowhere, 1, "of no object");
    if (own.combine(0)) other.combine(0);
  });
}

TEST(Phases, AClosedObjectRefusesEverythingAndCanBeClosedAgain) {
  run(phases_case(), [](Rank& rank, Job& own) {
    if (!own.dispatch(0)) return;
    AllToAll& object = own.all_to_all();
    const DispatchInput in = own.make_input(1);
    const DispatchOutput out = own.make_output(1);
    // Peers may close while others are still in the round; here nobody waits for anybody any more.
    rank.expect_ok(object.close(), "close");
    rank.expect_ok(object.close(), "close again");
    expect_wrong_state(rank, object.dispatch_send(in).status(), "dispatch_send", {"closed"});
    expect_wrong_state(rank, object.dispatch(in, out).status(), "dispatch", {"closed"});
    expect_wrong_state(rank, object.dispatch_recv(own.routing(0), out), "dispatch_recv", {"closed"});
    expect_wrong_state(rank, object.combine_send(own.routing(0), own.rows(0)), "combine_send", {"closed"});
    expect_wrong_state(rank, object.combine_recv(own.routing(0), own.y(0)), "combine_recv", {"closed"});
    expect_wrong_state(rank, object.combine(own.routing(0), own.rows(0), own.y(0)), "combine", {"closed"});
    Tensor view;
    expect_wrong_state(rank, object.dispatch_view(own.routing(0), &view), "dispatch_view", {"closed"});
    expect_wrong_state(rank, object.status(), "status", {"closed"});
  });
}

TEST(Phases, ARankMayCloseWhileOthersStillReceive) {
  const Case job = phases_case();
  const auto batches = make_batches(job);
  for (const As as : {As::kThreads, As::kProcesses}) {
    expect_runs(2, as, [&](Rank& rank) {
      for (int attempt = 0; attempt < scaled(20); ++attempt) {
        Job own(rank, job, batches);
        if (!own.create() || !own.dispatch(0) || !own.combine_send(0)) return;
        // Each in turn is late, and finds the other one gone.
        if (rank.rank() == attempt % 2) std::this_thread::sleep_for(std::chrono::milliseconds(3));
        if (!own.combine_recv(0) || !own.close()) return;
      }
    });
  }
}

}  // namespace
}  // namespace moeway::multi_rank
