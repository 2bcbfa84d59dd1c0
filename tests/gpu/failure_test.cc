// Faults on devices end in an error of a later call or of status(), never in a trap: CUDA itself stays without an error,
// and the process makes new communicators that work.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "gpu/setting.h"
#include "multi_rank/check.h"
#include "multi_rank/forms.h"

namespace moeway::multi_rank {
namespace {

Case small_case() {
  Case job;
  job.shape.num_ranks = 2;
  job.shape.num_experts = 8;
  job.shape.topk = 4;
  job.shape.hidden = 40;
  job.shape.max_tokens = 6;
  job.tokens = reference::Tokens::kFull;
  job.rounds = 2;
  return job;
}

void expect_no_cuda_error() {
  for (int device = 0; device < gpu::num_devices(); ++device) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "device " << device;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << "device " << device;
    EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "device " << device;
  }
}

// Runs the ranks; then nothing of their failure may be left in this process.
void run(const Case& job, const std::function<void(Rank&, Job&)>& body) {
  const auto batches = make_batches(job);
  expect_runs(job.shape.num_ranks, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    if (!own.create()) return;
    body(rank, own);
    // Of the same communicator.
    rank.expect_ok(own.all_to_all().close(), "close");
    Job again(rank, job, batches);
    if (again.create() && again.dispatch(0)) again.combine(0);
  });
  expect_no_cuda_error();
  Case fresh = small_case();
  expect_passes(fresh);
}

// Rank 0 has none of these routes of its first round, so that what rank 1 gets does not depend on what stands there.
void leave_out(Case& job, size_t first, size_t count) {
  job.batch = [shape = job.shape, first, count](int round) {
    reference::Batch batch =
        make_batch(shape, reference::Values::kExact, reference::Routes::kUniform, {6, 6}, 3, round);
    std::vector<int64_t> routes = batch[0].topk_idx;
    std::fill_n(routes.begin() + static_cast<std::ptrdiff_t>(first), count, -1);
    batch[0] = make_input(shape, reference::Values::kExact, 3, round, 0, routes);
    return batch;
  };
}

template <class Index>
void spoil(const DispatchInput& in, Index id) {
  static_cast<Index*>(in.topk_idx.data)[9] = id;
}

// The kernel leaves the route out and goes on, so that peers get the rest; its own rank is told.
TEST(DeviceFailure, AnIdOutOfRangeIsAnErrorOfItsRankAlone) {
  for (const Ids ids : {Ids::kI64, Ids::kI32}) {
    for (const int64_t id : {int64_t{8}, int64_t{9}, int64_t{-2}, int64_t{std::numeric_limits<int32_t>::max()},
                             int64_t{std::numeric_limits<int32_t>::min()}, (int64_t{1} << 32) + 3,
                             std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
      if (ids == Ids::kI32 && id != static_cast<int32_t>(id)) continue;
      Case job = small_case();
      job.ids = ids;
      leave_out(job, 9, 1);  // topk_idx[2, 1].
      run(job, [&](Rank& rank, Job& own) {
        if (rank.rank() == 1) {
          own.dispatch(0);
          return;
        }
        const DispatchInput in = own.make_input(0);
        if (ids == Ids::kI32) spoil(in, static_cast<int32_t>(id));
        if (ids == Ids::kI64) spoil(in, id);
        const DispatchOutput out = own.make_output(0);
        rank.expect_error(own.all_to_all().dispatch(in, out).status(), MOEWAY_INVALID_ARGUMENT,
                          {"topk_idx[2, 1]", "0 to 7"}, "id " + std::to_string(id));
      });
    }
  }
}

TEST(DeviceFailure, ABrokenPromiseOfDistinctExpertsIsAnError) {
  Case job = small_case();
  job.shape.distinct_experts = true;
  leave_out(job, 0, 4);
  run(job, [&](Rank& rank, Job& own) {
    if (rank.rank() == 1) {
      own.dispatch(0);
      return;
    }
    const DispatchInput in = own.make_input(0);
    auto* routes = static_cast<int64_t*>(in.topk_idx.data);
    routes[0] = routes[2] = 1;  // Of rank 0 itself.
    const DispatchOutput out = own.make_output(0);
    rank.expect_error(own.all_to_all().dispatch(in, out).status(), MOEWAY_INVALID_ARGUMENT, {"topk_idx[0, "}, "twice");
  });
}

// Each wait of the four phases, and of a launch that does both halves.
TEST(DeviceFailure, AMissingPeerIsNamedWhenTheDeadlinePasses) {
  for (const int step : {0, 1, 2, 3}) {
    Case job = small_case();
    job.timeout_ms = 500;
    run(job, [&](Rank& rank, Job& own) {
      if (step >= 2 && !own.dispatch(0)) return;
      if (rank.rank() == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        return;
      }
      const auto start = std::chrono::steady_clock::now();
      Status status;
      if (step == 0) {
        const DispatchInput in = own.make_input(0);
        status = own.all_to_all().dispatch(in, own.make_output(0)).status();
      } else if (step == 1) {
        if (!own.dispatch_send(0)) return;  // Never waits.
        status = own.all_to_all().dispatch_recv(own.routing(0), own.make_output(0));
      } else if (step == 2) {
        status = own.combine_into(0, own.y(0));
      } else {
        if (!own.combine_send(0)) return;
        status = own.all_to_all().combine_recv(own.routing(0), own.y(0));
      }
      const auto took = std::chrono::steady_clock::now() - start;
      rank.expect_error(status, MOEWAY_DEADLINE_EXCEEDED, {"rank 1", "500 ms"}, "step " + std::to_string(step));
      rank.expect(took > std::chrono::milliseconds(400) && took < std::chrono::milliseconds(1500),
                  "the wait did not end at its limit");
    });
  }
}

TEST(DeviceFailure, MoreTokensThanDeclaredAreRefusedAndNothingIsSent) {
  const Case job = small_case();
  run(job, [&](Rank& rank, Job& own) {
    if (rank.rank() == 0) {
      DispatchInput in = own.make_input(0);
      for (moeway_tensor* tensor : {&in.x, &in.topk_idx, &in.topk_weights}) tensor->shape[0] = 7;
      rank.expect_error(own.all_to_all().dispatch_send(in).status(), MOEWAY_INVALID_ARGUMENT, {"7", "max_tokens", "6"},
                        "T > M");
    }
    if (own.dispatch(0)) own.combine(0);
  });
}

}  // namespace
}  // namespace moeway::multi_rank
