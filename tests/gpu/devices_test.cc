// Which rank is on which device, and which device is current, changes nothing but where memory lies.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/setting.h"
#include "multi_rank/check.h"

namespace moeway::multi_rank {
namespace {

Case device_case(int num_ranks) {
  Case job;
  job.shape.num_ranks = num_ranks;
  job.shape.num_experts = 7;
  job.shape.topk = 3;
  job.shape.hidden = 136;
  job.shape.max_tokens = 9;
  job.values = reference::Values::kArbitrary;
  job.routes = reference::Routes::kMixed;
  job.rounds = 6;
  return job;
}

TEST(Devices, AnyRankMayBeOnAnyOfThem) {
  for (const std::vector<int>& order :
       {std::vector<int>{1, 0}, {0, 0}, {1, 1}, {1, 1, 0}, {0, 0, 0, 0}, {0, 1, 1, 1}}) {
    if (!gpu::are_there(order)) continue;
    const gpu::DeviceOrder there(order);
    ASSERT_TRUE(expect_passes(device_case(static_cast<int>(order.size()))));
  }
  if (!gpu::are_there({1})) GTEST_SKIP() << gpu::kOneDevice;
}

TEST(Devices, AnotherOneMayBeCurrentAndStaysSo) {
  if (!gpu::are_there({1})) GTEST_SKIP() << gpu::kOneDevice;
  const Case job = device_case(2);
  const auto batches = make_batches(job);
  expect_runs(2, As::kThreads, [&](Rank& rank) {
    Job own(rank, job, batches);
    const int other = (gpu::device_of(rank.rank()) + 1) % gpu::num_devices();
    cudaSetDevice(other);
    own.run();
    int current = -1;
    cudaGetDevice(&current);
    rank.expect(current == other, "the current device is " + std::to_string(current));
    cudaSetDevice(gpu::device_of(rank.rank()));
  });
}

TEST(Devices, OneThatIsNotThereIsRefusedOnAllRanks) {
  const ThreadGroup group(2);
  const RanksResult result = run_ranks({2, As::kThreads, std::chrono::seconds(30), false}, [&](Rank& rank) {
    Result<Bootstrap> bootstrap = Bootstrap::threads(group, rank.rank());
    if (!rank.expect_ok(bootstrap.status(), "bootstrap")) return;
    CommunicatorOptions options = place::communicator_options();
    if (rank.rank() == 1) options.device_index = 77;
    const Status status = Communicator::create(std::move(bootstrap).value(), options).status();
    rank.expect(!status.ok() && status.message().find("77") != std::string::npos, status.to_string());
    rank.expect(cudaGetLastError() == cudaSuccess, "a CUDA error stays behind");
  });
  EXPECT_EQ(result.failures, "");
}

TEST(Devices, MoreMultiprocessorsThanARankCanHaveAreRefused) {
  const RanksResult result = run_ranks({2, As::kThreads, std::chrono::seconds(30), true}, [](Rank& rank) {
    AllToAllConfig config;
    config.num_experts = 4;
    config.topk = 2;
    config.hidden = 8;
    config.max_tokens = 4;
    config.num_sms = 100000;
    rank.expect_error(AllToAll::create(rank.communicator(), config).status(), MOEWAY_INVALID_ARGUMENT,
                      {"num_sms", "100000"}, "create");
  });
  EXPECT_EQ(result.failures, "");
}

}  // namespace
}  // namespace moeway::multi_rank
