// Everything enqueued on the stream before a call is seen by it, its outputs are there for what comes after it, and its
// inputs may be overwritten right behind it; on any stream, without the host waiting for anything.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <string>

#include "gpu/image_round.h"
#include "gpu/setting.h"
#include "gpu/stream_work.h"
#include "multi_rank/check.h"

namespace moeway::gpu {
namespace {

using multi_rank::As;
using multi_rank::expect_runs;
using multi_rank::Rank;
namespace place = multi_rank::place;

constexpr int kRounds = 60;

ImageCase streams_case() {
  ImageCase given;
  given.shape.num_experts = 9;
  given.shape.topk = 3;
  given.shape.hidden = 128;
  given.shape.max_tokens = 12;
  given.num_tokens = {12, 7};
  given.seed = 14;
  return given;
}

// A stream, or an event, for the length of a test.
struct Stream {
  cudaStream_t stream = nullptr;
  Stream() { cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(stream); }
};
struct Event {
  cudaEvent_t event = nullptr;
  Event() { cudaEventCreateWithFlags(&event, cudaEventDisableTiming); }
  ~Event() { cudaEventDestroy(event); }
  // What comes on `later` waits for what is on `earlier`.
  void join(cudaStream_t earlier, cudaStream_t later) {
    cudaEventRecord(event, earlier);
    cudaStreamWaitEvent(later, event, 0);
  }
};

void run_on_one_stream(Rank& rank, ImageRound& round, cudaStream_t stream) {
  for (int i = 0; i < kRounds; ++i) {
    const int image = i % 16;
    if (i % 2 == rank.rank()) enqueue_delay(stream, 300);
    round.stage_inputs(stream, image);
    round.poison_outputs(stream);
    if (!round.dispatch()) return;
    round.spoil_inputs(stream);
    if (i % 3 == rank.rank()) enqueue_delay(stream, 200);
    round.stage_rows(stream, image);
    if (!round.combine()) return;
    round.compare(stream, image);
  }
  round.right(stream, "all rounds");
}

TEST(Streams, InputsWrittenBehindADelayAreSeen) {
  const ImageCase given = streams_case();
  expect_runs(2, As::kThreads, [&](Rank& rank) {
    ImageRound round(rank, rank.communicator(), given);
    if (round.made()) run_on_one_stream(rank, round, static_cast<cudaStream_t>(place::stream()));
  });
}

TEST(Streams, TheDefaultStreamIsOneToo) {
  const ImageCase given = streams_case();
  expect_runs(2, As::kThreads, [&](Rank& rank) {
    ImageRound round(rank, rank.communicator(), given);
    if (!round.made() || !rank.expect_ok(round.object().set_stream(nullptr), "set_stream")) return;
    run_on_one_stream(rank, round, nullptr);
  });
}

// Tokens and experts on one stream, the calls on another one, joined by events alone.
TEST(Streams, CallsOnASideStreamAreJoinedByEvents) {
  const ImageCase given = streams_case();
  expect_runs(2, As::kThreads, [&](Rank& rank) {
    auto* compute = static_cast<cudaStream_t>(place::stream());
    Stream side;
    Event event;
    ImageRound round(rank, rank.communicator(), given);
    if (!round.made() || !rank.expect_ok(round.object().set_stream(side.stream), "set_stream")) return;
    for (int i = 0; i < kRounds; ++i) {
      const int image = i % 16;
      if (i % 2 == rank.rank()) enqueue_delay(compute, 300);
      round.stage_inputs(compute, image);
      round.poison_outputs(compute);
      event.join(compute, side.stream);
      if (!round.dispatch()) return;
      event.join(side.stream, compute);
      enqueue_delay(compute, 50);
      round.stage_rows(compute, image);
      event.join(compute, side.stream);
      if (!round.combine()) return;
      event.join(side.stream, compute);
      round.compare(compute, image);
    }
    round.right(compute, "all rounds");
    round.right(side.stream, "all rounds");
    rank.expect_ok(round.object().close(), "close");  // Before its stream goes.
  });
}

TEST(Streams, DispatchAndCombineOnDifferentStreamsJoinedByEvents) {
  const ImageCase given = streams_case();
  expect_runs(2, As::kThreads, [&](Rank& rank) {
    auto* first = static_cast<cudaStream_t>(place::stream());
    Stream second;
    Event event;
    ImageRound round(rank, rank.communicator(), given);
    if (!round.made()) return;
    for (int i = 0; i < kRounds; ++i) {
      const int image = i % 16;
      if (i % 2 == rank.rank()) enqueue_delay(first, 300);
      round.stage(first, image);
      if (!rank.expect_ok(round.object().set_stream(first), "set_stream") || !round.dispatch()) return;
      event.join(first, second.stream);
      if (i % 3 == rank.rank()) enqueue_delay(second.stream, 200);
      if (!rank.expect_ok(round.object().set_stream(second.stream), "set_stream") || !round.combine()) return;
      round.compare(second.stream, image);
      event.join(second.stream, first);
    }
    round.right(first, "all rounds");
    round.right(second.stream, "all rounds");
    rank.expect_ok(round.object().close(), "close");
  });
}

}  // namespace
}  // namespace moeway::gpu
