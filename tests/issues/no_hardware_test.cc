// A machine without what is optional: no GPU, no CUDA library, no RDMA device, two processors for many ranks. Nothing
// optional is opened, and asking for it is an error of all ranks that names it.
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "multi_rank/board.h"
#include "multi_rank/check.h"
#include "multi_rank/small_round.h"

namespace moeway::multi_rank {
namespace {

constexpr int64_t kTimeoutMs = 60000;

// What this process has mapped whose name says that it belongs to optional hardware.
std::string optional_libraries() {
  std::string found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    for (const char* name : {"libcuda.so", "libnvidia", "libnccl", "nvshmem", "libfabric", "libibverbs", "librdmacm",
                             "libmpi", "/dev/nvidia", "/dev/infiniband"})
      if (line.find(name) != std::string::npos) found += line + "\n";
  return found;
}

TEST(NoHardware, NothingOptionalIsOpened) {
  expect_runs(2, As::kProcesses, [](Rank& rank) {
    SmallRound small(2, rank.rank());
    if (!rank.expect_ok(small.create(rank.communicator(), kTimeoutMs), "create")) return;
    rank.expect_ok(small.run(0), "round");
    rank.expect(optional_libraries().empty(), "mapped: " + optional_libraries());
  });
}

// One rank asks for a device that is not there, or all do.
TEST(NoHardware, AMissingDeviceIsAnErrorOfAllRanks) {
  for (const bool all : {false, true}) {
    const PrivateDirectory meeting, second;
    const RanksResult result = run_ranks({3, As::kProcesses, std::chrono::seconds(60), false}, [&](Rank& rank) {
      setenv("CUDA_VISIBLE_DEVICES", "", 1);  // The machine may have some.
      Result<Bootstrap> bootstrap = Bootstrap::local(meeting.path(), rank.rank(), 3);
      if (!rank.expect_ok(bootstrap.status(), "bootstrap")) return;
      CommunicatorOptions options;
      options.timeout_ms = kTimeoutMs;
      if (all || rank.rank() == 1) options.device_type = MOEWAY_CUDA;
      const int64_t start = now_ms();
      const Status refused = Communicator::create(std::move(bootstrap).value(), options).status();
      rank.expect_error(refused, all ? MOEWAY_UNAVAILABLE : MOEWAY_MISMATCH,
                        all ? std::vector<std::string>{"CUDA"} : std::vector<std::string>{"device_type", "rank 1"},
                        "communicator");
      rank.expect(now_ms() - start < 10000, "took 10 s or longer");
      // On CPUs the same processes work.
      bootstrap = Bootstrap::local(second.path(), rank.rank(), 3);
      if (!rank.expect_ok(bootstrap.status(), "bootstrap again")) return;
      Result<Communicator> communicator = Communicator::create(std::move(bootstrap).value());
      if (!rank.expect_ok(communicator.status(), "communicator on CPUs")) return;
      SmallRound small(3, rank.rank());
      if (rank.expect_ok(small.create(communicator.value(), kTimeoutMs), "create"))
        rank.expect_ok(small.run(0), "round");
    });
    EXPECT_EQ(result.failures, "");
  }
}

// Who spins while others need the processor takes a thousand times as long.
TEST(NoHardware, EightRanksShareTwoProcessors) {
  for (const Execution execution : {kFibers, kThreads}) {
    Case job;
    job.shape.num_ranks = 8;
    job.shape.num_experts = 19;
    job.shape.topk = 4;
    job.shape.max_tokens = 16;
    job.rounds = scaled(100);
    job.execution = execution;
    job.num_warps = 2;
    const auto batches = make_batches(job);
    const int64_t start = now_ms();
    const bool passed = expect_runs(8, As::kProcesses, [&](Rank& rank) {
      cpu_set_t two;
      CPU_ZERO(&two);
      cpu_set_t all;
      sched_getaffinity(0, sizeof(all), &all);
      for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &two);
      sched_setaffinity(0, sizeof(two), &two);
      Job(rank, job, batches).run();
    });
    ASSERT_TRUE(passed);
    EXPECT_LT(now_ms() - start, 60000);
  }
}

}  // namespace
}  // namespace moeway::multi_rank
