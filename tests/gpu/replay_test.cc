// Captured rounds, replayed: n replays are n calls, each with the inputs that are there when it runs.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "gpu/image_round.h"
#include "gpu/stream_work.h"
#include "multi_rank/check.h"
#include "reference/random.h"

namespace moeway::gpu {
namespace {

using multi_rank::As;
using multi_rank::expect_runs;
using multi_rank::Rank;
namespace place = multi_rank::place;

// What `calls` enqueues on the stream. To be made on all ranks before one of them launches: making one takes memory, which
// may wait for what runs on the device.
class Graph {
 public:
  Graph(Rank& rank, cudaStream_t stream, const std::function<bool()>& calls) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
    const bool called = error == cudaSuccess && calls();
    if (const cudaError_t ended = cudaStreamEndCapture(stream, &graph); error == cudaSuccess) error = ended;
    if (error == cudaSuccess) error = cudaGraphInstantiate(&executable_, graph, 0);
    if (error == cudaSuccess) error = cudaGraphUpload(executable_, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (graph != nullptr) cudaGraphDestroy(graph);
    made_ = rank.expect(error == cudaSuccess, std::string("capture: ") + cudaGetErrorString(error)) && called;
  }
  ~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  bool made() const { return made_; }
  void launch() { cudaGraphLaunch(executable_, stream_); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t executable_ = nullptr;
  bool made_ = false;
};

ImageCase replay_case(int num_ranks) {
  ImageCase given;
  given.shape.num_ranks = num_ranks;
  given.shape.num_experts = 2 * num_ranks + 3;
  given.shape.topk = 4;
  given.shape.hidden = 256;
  given.shape.max_tokens = 16;
  given.shape.distinct_experts = true;
  for (int rank = 0; rank < num_ranks; ++rank) given.num_tokens.push_back(16 - 3 * rank % 16);
  return given;
}

// The same on all ranks, another one each time.
int image_of(const ImageCase& given, int replay) {
  return static_cast<int>(reference::hash(given.seed, 7, replay) % static_cast<uint64_t>(given.num_images));
}

// Now and then one rank's stream is late.
void delay_sometimes(const Rank& rank, cudaStream_t stream, int replay, int step) {
  const uint64_t drawn = reference::hash(11, replay, step);
  if (drawn % 8 != 0 || static_cast<int>(drawn / 8 % static_cast<uint64_t>(rank.size())) != rank.rank()) return;
  enqueue_delay(stream, static_cast<int64_t>(drawn / 1024 % 400));
}

void run_replays(int num_ranks, int num_replays, int stop_every) {
  const ImageCase given = replay_case(num_ranks);
  expect_runs(num_ranks, As::kThreads, [&](Rank& rank) {
    auto* stream = static_cast<cudaStream_t>(place::stream());
    ImageRound round(rank, rank.communicator(), given);
    if (!round.made()) return;
    Graph graph(rank, stream, [&] { return round.dispatch() && round.combine(); });
    if (!graph.made() || !rank.expect_ok(rank.communicator().barrier(), "barrier")) return;
    for (int replay = 0; replay < num_replays; ++replay) {
      const int image = image_of(given, replay);
      delay_sometimes(rank, stream, replay, 0);
      round.stage(stream, image);
      delay_sometimes(rank, stream, replay, 1);
      graph.launch();
      round.compare(stream, image);
      if (replay % stop_every == stop_every - 1 && !round.right(stream, "up to replay " + std::to_string(replay)))
        return;
    }
  });
}

TEST(Replay, TenThousandWithChangingInputsAndALateRankAreAllRight) { run_replays(2, 10000, 200); }
TEST(Replay, TwoThousandOfFourRanksAreAllRight) { run_replays(4, 2000, 10); }

// Graphs of one and of three rounds, and calls that are not captured, in any order.
TEST(Replay, GraphsAndEagerCallsTakeTurns) {
  const ImageCase given = replay_case(2);
  expect_runs(2, As::kThreads, [&](Rank& rank) {
    auto* stream = static_cast<cudaStream_t>(place::stream());
    ImageRound round(rank, rank.communicator(), given);
    if (!round.made()) return;
    const auto once = [&] { return round.dispatch() && round.combine(); };
    Graph one(rank, stream, once);
    Graph three(rank, stream, [&] { return once() && once() && once(); });
    if (!one.made() || !three.made() || !rank.expect_ok(rank.communicator().barrier(), "barrier")) return;
    const std::string order = "ABAeBeeAABBe";
    for (int turn = 0; turn < 40; ++turn) {
      for (size_t i = 0; i < order.size(); ++i) {
        const int replay = turn * 100 + static_cast<int>(i), image = image_of(given, replay);
        round.stage(stream, image);
        delay_sometimes(rank, stream, replay, 2);
        if (order[i] == 'A') one.launch();
        if (order[i] == 'B') three.launch();
        if (order[i] == 'e' && !once()) return;
        round.compare(stream, image);
      }
      if (!round.right(stream, "turn " + std::to_string(turn) + " of " + order)) return;
    }
  });
}

}  // namespace
}  // namespace moeway::gpu
