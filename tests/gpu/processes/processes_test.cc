// A process for each rank: rounds, devices that each process numbers in its own way, and a process that is killed.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <string>

#include "gpu/image_round.h"
#include "gpu/setting.h"
#include "gpu/stream_work.h"
#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case process_case(int num_ranks, const LayoutForm& layout) {
  Case job;
  job.shape.num_ranks = num_ranks;
  job.shape.num_experts = 9;
  job.shape.topk = 4;
  job.shape.hidden = 264;
  job.shape.max_tokens = 17;
  layout.apply(job.shape);
  job.values = reference::Values::kArbitrary;
  job.routes = reference::Routes::kMixed;
  job.rounds = 12;
  job.max_delay_us = 2000;
  return job;
}

TEST(GpuProcesses, RoundsGiveTheReferencesBits) {
  for (const LayoutForm& layout : kLayoutForms) {
    Case job = process_case(2, layout);
    job.order = layout.weights == reference::Weights::kAtDispatch ? Order::kPipelined : Order::kFused;
    ASSERT_TRUE(expect_passes(job, As::kProcesses));
  }
  ASSERT_TRUE(expect_passes(process_case(4, kLayoutForms[0]), As::kProcesses));
}

TEST(GpuProcesses, EachMaySeeItsOwnDeviceAsNumberZero) {
  for (const std::vector<int>& order : {std::vector<int>{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
    if (!gpu::are_there(order)) continue;
    const gpu::DeviceOrder there(order, true);
    ASSERT_TRUE(expect_passes(process_case(2, kLayoutForms[0]), As::kProcesses));
  }
  if (!gpu::are_there({1})) GTEST_SKIP() << gpu::kOneDevice;
}

// Leaves as the last rank standing would: whatever has happened, this process can do something new.
void expect_goes_on_alone(Rank& rank) {
  const cudaError_t error = cudaGetLastError();
  rank.expect(error == cudaSuccess, std::string("a CUDA error stays behind: ") + cudaGetErrorString(error));
  const ThreadGroup group(1);
  Result<Bootstrap> bootstrap = Bootstrap::threads(group, 0);
  if (!rank.expect_ok(bootstrap.status(), "bootstrap")) return;
  Result<Communicator> alone = Communicator::create(std::move(bootstrap).value(), place::communicator_options());
  if (!rank.expect_ok(alone.status(), "a new communicator")) return;
  gpu::ImageCase given;
  given.shape.num_ranks = 1;
  given.num_tokens = {8};
  auto* stream = static_cast<cudaStream_t>(place::stream());
  gpu::ImageRound round(rank, alone.value(), given);
  if (!round.made()) return;
  round.stage(stream, 3);
  if (!round.dispatch() || !round.combine()) return;
  round.compare(stream, 3);
  round.right(stream, "a round of the rank that is left");
}

// Where rank 1 ends.
enum class Point { kBeforeDispatch, kDispatchEnqueued, kDispatchSent, kDispatched, kCombineSent };

Status dispatch(Job& own, int round) {
  const DispatchInput in = own.make_input(round);
  return own.all_to_all().dispatch(in, own.make_output(round)).status();
}

// What rank 1 does in round 1.
void die(Job& own, Point point) {
  if (point == Point::kDispatchEnqueued) {
    gpu::enqueue_delay(static_cast<cudaStream_t>(place::stream()), 100000);
    const DispatchInput in = own.make_input(1);
    (void)static_cast<AllToAll&>(own.all_to_all()).dispatch(in, own.make_output(1));
  }
  if (point == Point::kDispatchSent) own.dispatch_send(1);
  if (point >= Point::kDispatched) own.dispatch(1);
  if (point == Point::kCombineSent) own.combine_send(1);
  raise(SIGKILL);
}

// What rank 0 does in round 1 and, if that was all there, in the next one: it ends with an error.
Status meet_the_end(Job& own, Point point) {
  Status status;
  if (point < Point::kDispatched) {
    status = dispatch(own, 1);
  } else if (own.dispatch(1)) {
    status = own.combine_into(1, own.y(1));
  }
  return status.ok() ? dispatch(own, 2) : status;
}

// Rank 1 is killed at the point; rank 0 gets an error that names it, in time.
void run_kill(Point point) {
  Case job = process_case(2, kLayoutForms[0]);
  job.timeout_ms = 2000;
  job.max_delay_us = 0;
  job.tokens = reference::Tokens::kFull;
  const auto batches = make_batches(job);
  const RanksResult result = run_ranks({2, As::kProcesses, std::chrono::seconds(60), true}, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create() || !own.dispatch(0) || !own.combine(0)) return;
    if (rank.rank() == 1) die(own, point);
    const auto start = std::chrono::steady_clock::now();
    const Status status = meet_the_end(own, point);
    const auto took = std::chrono::steady_clock::now() - start;
    rank.expect(status.code() == MOEWAY_PEER_LOST || status.code() == MOEWAY_DEADLINE_EXCEEDED,
                "expected PEER_LOST or DEADLINE_EXCEEDED, got " + status.to_string());
    rank.expect(status.message().find("rank 1") != std::string::npos, "rank 1 is not named: " + status.to_string());
    rank.expect(took < std::chrono::milliseconds(2000 + 1000), "took longer than the limit and a second");
    rank.expect_ok(own.all_to_all().close(), "close");
    expect_goes_on_alone(rank);
  });
  EXPECT_EQ(result.failures, "rank 1: ended by signal 9\n");
}

TEST(GpuProcesses, AKilledPeerIsNamedBeforeDispatch) { run_kill(Point::kBeforeDispatch); }
TEST(GpuProcesses, AKilledPeerIsNamedWithItsDispatchEnqueued) { run_kill(Point::kDispatchEnqueued); }
TEST(GpuProcesses, AKilledPeerIsNamedBetweenTheHalvesOfDispatch) { run_kill(Point::kDispatchSent); }
TEST(GpuProcesses, AKilledPeerIsNamedBetweenDispatchAndCombine) { run_kill(Point::kDispatched); }
TEST(GpuProcesses, AKilledPeerIsNamedBetweenTheHalvesOfCombine) { run_kill(Point::kCombineSent); }

TEST(GpuProcesses, OneThatLeavesWithoutClosingLeavesNothingBehind) {
  const Case job = process_case(2, kLayoutForms[0]);
  const auto batches = make_batches(job);
  expect_runs(2, As::kProcesses, [&](Rank& rank) {
    auto* own = new Job(rank, job, batches);  // Never closed: the process ends with it.
    if (own->create() && own->dispatch(0)) own->combine(0);
  });
}

}  // namespace
}  // namespace moeway::multi_rank
