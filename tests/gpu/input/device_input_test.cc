// What a device finds out by itself: the number of tokens, and fp8 made of bf16 on the way.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "gpu/input/rank.h"

namespace moeway::gpu {
namespace {

using reference::Values;

reference::Shape counted_shape() {
  reference::Shape shape;
  shape.num_experts = 8;
  shape.topk = 3;
  shape.hidden = 264;
  shape.max_tokens = 40;
  return shape;
}

// Both calls of a round, once captured.
class Graph {
 public:
  explicit Graph(Rank& rank) : rank_(rank) {
    cudaStreamBeginCapture(rank.stream(), cudaStreamCaptureModeThreadLocal);
    const Result<Routing> routing = rank.object().dispatch(rank.input(), rank.output());
    if (rank.note(routing.status())) rank.note(rank.combine(routing.value()));
    cudaStreamEndCapture(rank.stream(), &graph_);
    if (rank.wrong().empty()) rank.expect(cudaGraphInstantiate(&executable_, graph_, 0) == cudaSuccess, "instantiate");
  }
  ~Graph() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  bool replay() {
    if (!rank_.wrong().empty()) return false;
    rank_.expect(cudaGraphLaunch(executable_, rank_.stream()) == cudaSuccess, "launch");
    rank_.synchronize();
    return rank_.note(rank_.object().status());
  }

 private:
  Rank& rank_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

// Experts are not in the graph: the rows that a replay's combine is given are those that the experts made after the replay before, of the
// same inputs, so that every replay's sums can be looked at, too.
TEST_F(Nvlink, AReplayTakesAsManyTokensAsTheDeviceSays) {
  for (const auto weights : {reference::Weights::kAtDispatch, reference::Weights::kAtCombine}) {
    reference::Shape shape = counted_shape();
    shape.weights = weights;
    const std::string wrong = run(shape, [&](int r, Rank& rank) {
      const auto batch_in = [&](int round) {
        return reference::make_batch(shape, Values::kArbitrary, reference::Routes::kMixed,
                                     {(7 * round + 3) % 41, round % 3 == 0 ? 0 : 40 - round % 41}, 5, round);
      };
      rank.set_counted_input(batch_in(0)[static_cast<size_t>(r)]);
      Graph graph(rank);
      for (int step = 0; step < 200 && rank.wrong().empty(); ++step) {
        const reference::Batch batch = batch_in(step / 2);
        const reference::RankInput& own = batch[static_cast<size_t>(r)];
        rank.set_counted_input(own);
        if (step % 2 == 0) rank.poison();
        if (step % 2 == 1) rank.poison_results();
        if (r == step % 2 && step % 20 < 2) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        if (!graph.replay() || !rank.check_dispatch(batch, Values::kArbitrary) || step % 2 == 0) continue;
        rank.check_combine(own, Values::kArbitrary);
        rank.check_untouched(own.num_tokens);
      }
    });
    ASSERT_EQ(wrong, "") << describe(shape);
  }
}

TEST_F(Nvlink, ANumberOfTokensThatCannotBeIsAnErrorOfStatusAndNotAHang) {
  for (const int32_t given : {41, -1, INT32_MAX}) {
    const reference::Shape shape = counted_shape();
    const std::string wrong = run(shape, [&](int r, Rank& rank) {
      reference::Batch batch =
          reference::make_batch(shape, Values::kExact, reference::Routes::kUniform, {40, 40}, 5, 0);
      rank.set_counted_input(batch[static_cast<size_t>(r)]);
      if (r == 0) rank.set_count(given);
      const Result<Routing> routing = rank.object().dispatch(rank.input(), rank.output());
      rank.synchronize();
      const Status status = rank.object().status();
      if (r == 0) {
        rank.expect(
            status.code() == MOEWAY_INVALID_ARGUMENT &&
                status.message().find("is " + std::to_string(given) + ", expected 0 to 40") != std::string::npos &&
                status.message().find("max_tokens is 40") != std::string::npos,
            status.to_string());
      } else if (rank.note(status)) {
        batch[0] = reference::make_input(shape, Values::kExact, 5, 0, 0, {});
        rank.check_dispatch(batch, Values::kExact);
      }
      rank.expect(cudaGetLastError() == cudaSuccess, "a CUDA error stays behind");
    });
    EXPECT_EQ(wrong, "");
  }
}

// The reference's bits, as on the host: tokens of one chunk and of more, in whole units and not, and any bits at all.
TEST_F(Nvlink, QuantisesAsTheReferenceDoes) {
  using reference::Quantise, reference::Scales, reference::Layout;
  const std::pair<Scales, Quantise> kinds[] = {{Scales::kF32, Quantise::kLargest},
                                               {Scales::kF32, Quantise::kPowerOfTwo},
                                               {Scales::kUe8m0, Quantise::kPowerOfTwo}};
  for (const auto& [scales, quantise] : kinds) {
    for (const Layout layout : {Layout::kExpertPadded, Layout::kExpertPacked, Layout::kTokenMajor}) {
      for (const int64_t hidden : {130, 264, 7168, 8192 + 136}) {
        reference::Shape shape = counted_shape();
        shape.dispatch_dtype = reference::DType::kF8E4M3;
        shape.scales = scales;
        shape.quantise = quantise;
        shape.layout = layout;
        shape.hidden = hidden;
        shape.max_tokens = 12;
        const std::string wrong = run(shape, [&](int r, Rank& rank) {
          for (int round = 0; round < 4 && rank.wrong().empty(); ++round) {
            const Values values = round == 3 ? Values::kAnyBits : Values::kArbitrary;
            const reference::Batch batch = reference::make_batch(
                shape, values, reference::Routes::kMixed,
                reference::make_num_tokens(shape, reference::Tokens::kRandom, 3, round), 3, round);
            rank.poison();
            rank.set_input(batch[static_cast<size_t>(r)]);
            const Result<Routing> routing = rank.object().dispatch(rank.input(), rank.output());
            rank.synchronize();
            if (!rank.note(routing.status()) || !rank.note(rank.object().status())) return;
            if (!rank.check_dispatch(batch, values) || values == Values::kAnyBits) continue;
            rank.note(rank.combine(routing.value()));
            rank.synchronize();
            if (rank.note(rank.object().status())) rank.check_combine(batch[static_cast<size_t>(r)], values);
          }
        });
        ASSERT_EQ(wrong, "") << describe(shape);
      }
    }
  }
}

}  // namespace
}  // namespace moeway::gpu
