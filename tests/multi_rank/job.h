// A whole job against the oracle: ranks, rounds, and every byte that the library writes.
#pragma once

#include <moeway/moeway.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "multi_rank/place.h"
#include "multi_rank/ranks.h"
#include "multi_rank/tensors.h"
#include "reference/inputs.h"
#include "reference/oracle.h"
#include "reference/shape.h"

namespace moeway::multi_rank {

enum class Order {
  kFused,      // dispatch, combine.
  kSplit,      // The four phases one after another, with work between them.
  kPipelined,  // The next dispatch_send comes between or before the phases of the combine before.
};
enum class Ids { kI64, kI32, kPerRank };

struct Case {
  reference::Shape shape;
  reference::Values values = reference::Values::kExact;
  reference::Routes routes = reference::Routes::kUniform;
  reference::Tokens tokens = reference::Tokens::kRandom;
  // Where it is set: the inputs of a round, instead of those that routes and tokens make.
  std::function<reference::Batch(int round)> batch;
  Overflow overflow = kOverflowDrop;  // Where the shape has a bound.
  Ids ids = Ids::kI64;
  Views views = Views::kDense;
  Order order = Order::kFused;
  int combine_every = 1;    // Every how-manieth dispatch has a combine; 0: none has.
  bool unweighted = false;  // Combine takes every weight as 1. Not for token_major, where the caller weighs.
  bool add = false;         // Combine adds onto numbers that y holds.
  bool view = false;        // token_major: read the tokens where they lie instead of having them copied.
  Execution execution = kFibers;
  int num_warps = 4;
  int num_sms = 0;       // Of devices.
  bool counted = false;  // The number of tokens stands in memory; tensors have max_tokens rows.
  int rounds = 2;
  int max_delay_us = 0;  // Of the seeded sleep before each step of each rank.
  int late_rank = -1;    // This rank sleeps for late_us before every step.
  int late_us = 0;
  int64_t timeout_ms = 20000;
  uint64_t seed = 1;
};

// One line with everything, for messages.
std::string describe(const Case& job);
AllToAllConfig make_config(const Case& job);
// The inputs of all rounds.
std::vector<reference::Batch> make_batches(const Case& job);

// One rank's side of a case. A step returns whether it went well, and notes in the rank what did not.
class Job {
 public:
  // Keeps references to all three.
  Job(Rank& rank, const Case& job, const std::vector<reference::Batch>& batches);

  bool create();  // Also compares the sizes that the library states with the reference's.
  bool run();     // All rounds in the case's order, then close().
  bool close();

  bool dispatch_send(int round);
  bool dispatch_recv(int round);
  bool combine_send(int round);
  bool combine_recv(int round);
  bool dispatch(int round);
  bool combine(int round);

  SettledAllToAll& all_to_all() { return *all_to_all_; }
  Routing routing(int round) { return flight(round).routing; }  // Unweighted if the case's combines are.

  // The right arguments of the calls of a round, for tests that spoil one of them or do something else with them.
  DispatchInput make_input(int round);
  DispatchOutput make_output(int round);
  Tensor rows(int round) { return flight(round).rows.tensor(); }
  Tensor y(int round) { return flight(round).y.first_rows(num_given(round)); }
  Tensor combine_weights(int round);
  void make_unweighted(int round) { flight(round).routing = unweighted(flight(round).routing); }
  // Where the rows of a dispatch lie and what they came from, as the library says: counts, first rows and sources, or
  // local experts.
  std::vector<std::byte> places(int round);
  // A dispatch, or its first half, of other tensors that hold the round's inputs; compared as always.
  bool dispatch_send_with(int round, const DispatchInput& in);
  bool dispatch_with(int round, const DispatchInput& in);
  // A combine into another tensor, with other weights where they come with combine; compared by the caller.
  Status combine_into(int round, const Tensor& y, const Tensor& topk_weights = Tensor());

 private:
  // The tensors of one round. Two rounds can be under way.
  struct Flight {
    Routing routing{};
    InputTensor x, scales, topk_idx, topk_weights, combine_weights;
    int32_t num_tokens = 0;
    OutputTensor received_x, received_scales, num_rows, first_row, row_source, row_weight, num_dropped, received_idx,
        received_weights;
    OutputTensor rows, y;
    std::vector<std::byte> y_before;  // With Case::add.
    bool with_first_row = true;
    bool with_row_source = true;
    bool with_row_weight = true;
    bool with_num_dropped = true;
    std::byte* view_x = nullptr;  // With Case::view: rows of x and of scales where they lie.
    std::byte* view_scales = nullptr;
    Tensor view_x_tensor, view_scales_tensor;
    Memory<std::byte> view_x_copy, view_scales_copy;  // Where the heap cannot be read from here.
  };

  Flight& flight(int round) { return flights_[static_cast<size_t>(round % 2)]; }
  const reference::RankInput& input(int round) const;
  bool gives_weights() const { return shape_.weights == reference::Weights::kAtCombine && !case_.unweighted; }
  // Rows of what is given to dispatch and to combine.
  int64_t num_given(int round) const { return case_.counted ? shape_.max_tokens : input(round).num_tokens; }
  bool check_sizes(const AllToAllSizes& sizes);
  void make_outputs(const AllToAllSizes& sizes, Flight& flight);
  void scramble_input(int round);
  void prepare_y(int round);
  bool take_view(int round);
  bool check_dispatch(int round);
  void expect_expert_rows(const reference::Received& received, Flight& flight, int round);
  void expect_token_rows(const reference::Received& received, Flight& flight, int round);
  void make_rows(int round);
  bool check_combine(int round);
  bool check_output(const OutputTensor& output, const char* name, int round);
  const std::byte* received_row(const Flight& flight, int64_t row) const;
  const std::byte* received_scales(const Flight& flight, int64_t row) const;
  Status combine_recv_status(int round);
  bool run_pipelined();
  bool combines(int round) const;
  void pause();

  Rank& rank_;
  const Case& case_;
  const reference::Shape& shape_;
  const std::vector<reference::Batch>& batches_;
  reference::Random random_;
  std::unique_ptr<SettledAllToAll> all_to_all_;
  std::array<Flight, 2> flights_;
  std::array<reference::Received, 2> received_;
  int64_t padded_rows_ = 0;
};

// Runs the case; what the ranks give is every round's y, dense, token after token.
RanksResult run_case(const Case& job, As as, std::chrono::seconds limit = std::chrono::seconds(120));

}  // namespace moeway::multi_rank
