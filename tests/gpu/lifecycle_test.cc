// Making, using and closing, again and again: memory of devices and host, and descriptors, stay as they are.
#include <cuda_runtime.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gpu/image_round.h"
#include "gpu/setting.h"
#include "multi_rank/check.h"

namespace moeway::gpu {
namespace {

using multi_rank::As;
using multi_rank::expect_runs;
using multi_rank::Rank;
namespace place = multi_rank::place;

struct Held {
  int64_t device_bytes = 0, host_bytes = 0, descriptors = 0, threads = 0;
};

int64_t entries(const char* directory) {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

// While nothing runs.
Held held() {
  Held held;
  for (int device = 0; device < num_devices(); ++device) {
    size_t free_bytes = 0, total_bytes = 0;
    cudaSetDevice(device);
    cudaDeviceSynchronize();
    cudaMemGetInfo(&free_bytes, &total_bytes);
    held.device_bytes += static_cast<int64_t>(total_bytes - free_bytes);
  }
  int64_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  held.host_bytes = resident * sysconf(_SC_PAGESIZE);
  held.descriptors = entries("/proc/self/fd");
  held.threads = entries("/proc/self/task");
  return held;
}

void print(const char* when, const Held& held) {
  std::printf("%s: %.1f MiB on all devices, %.1f MiB of host memory, %lld descriptors, %lld threads\n", when,
              static_cast<double>(held.device_bytes) / 1048576, static_cast<double>(held.host_bytes) / 1048576,
              static_cast<long long>(held.descriptors), static_cast<long long>(held.threads));
}

// Another shape, another number of ranks and another way to go each time.
bool run_cycle(int cycle) {
  ImageCase given;
  given.shape.num_ranks = cycle % 4 == 3 ? 4 : 2;
  given.shape.num_experts = 5 + cycle % 3 * 8;
  given.shape.topk = 1 + cycle % 4;
  given.shape.hidden = 128 << cycle % 3;
  given.shape.max_tokens = 8 + cycle % 5 * 16;
  given.num_tokens.assign(static_cast<size_t>(given.shape.num_ranks), given.shape.max_tokens);
  given.num_images = 2;
  return expect_runs(given.shape.num_ranks, As::kThreads, [&](Rank& rank) {
    auto* stream = static_cast<cudaStream_t>(place::stream());
    ImageRound round(rank, rank.communicator(), given);
    if (!round.made()) return;
    for (int image = 0; image < 2; ++image) {
      round.stage(stream, image);
      if (!round.dispatch() || !round.combine()) return;
      round.compare(stream, image);
    }
    if (!round.right(stream, "cycle " + std::to_string(cycle))) return;
    if (cycle % 3 == 0) rank.expect_ok(rank.communicator().close(), "the communicator first");
    if (cycle % 3 != 1) rank.expect_ok(round.object().close(), "close");
  });
}

TEST(Lifecycle, TwoHundredCyclesHoldNoMoreThanEighty) {
  constexpr int kWarm = 80, kCycles = 200;  // By then every shape has been there.
  Held before;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    if (cycle == kWarm) print("after 80 cycles", before = held());
    ASSERT_TRUE(run_cycle(cycle));
  }
  const Held after = held();
  print("after 200 cycles", after);
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_LE(after.device_bytes, before.device_bytes + 4 * kMiB);
  EXPECT_LE(after.host_bytes, before.host_bytes + 16 * kMiB);
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
}

// Ranks go when they like once their own calls are done.
TEST(Lifecycle, RanksCloseInAnyOrder) {
  for (int late = 0; late < 4; ++late) {
    ImageCase given;
    given.shape.num_ranks = 4;
    given.num_tokens = {8, 0, 3, 8};
    expect_runs(4, As::kThreads, [&](Rank& rank) {
      auto* stream = static_cast<cudaStream_t>(place::stream());
      ImageRound round(rank, rank.communicator(), given);
      if (!round.made()) return;
      round.stage(stream, 1);
      if (!round.dispatch() || !round.combine()) return;
      round.compare(stream, 1);
      if (rank.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (late % 2 == 0 && !round.right(stream, "before close")) return;
      rank.expect_ok(round.object().close(), "close");
      rank.expect_ok(round.object().close(), "close again");
      rank.expect(!round.dispatch_status().ok(), "a call after close gave no error");
      rank.expect(cudaStreamSynchronize(stream) == cudaSuccess && cudaGetLastError() == cudaSuccess,
                  "a CUDA error stays behind");
    });
  }
}

}  // namespace
}  // namespace moeway::gpu
