// Ten rounds around the places where a round counter of 31, 32 or 63 bits would turn over. Starts the counter there by
// the library's hook for tests; everything else is as in any job.
#include <gtest/gtest.h>
#include <moeway/moeway.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/all_to_all.h"
#include "core/c_api_objects.h"
#include "reference/oracle.h"

namespace moeway::core {
namespace {

constexpr int kNumRanks = 3;
constexpr int kNumRounds = 10;

reference::Shape shape_of_job() {
  reference::Shape shape;
  shape.num_ranks = kNumRanks;
  shape.num_experts = 5;
  shape.topk = 2;
  shape.hidden = 4;
  shape.max_tokens = 6;
  return shape;
}

AllToAllConfig config_of(const reference::Shape& shape) {
  AllToAllConfig config;
  config.num_experts = shape.num_experts;
  config.topk = shape.topk;
  config.hidden = shape.hidden;
  config.max_tokens = shape.max_tokens;
  config.num_warps = 3;
  config.timeout_ms = 10000;
  return config;
}

// One rank's memory for a round, all dense.
struct Memory {
  std::vector<std::byte> x, rows, y;
  std::vector<int32_t> num_rows;
  Tensor x_tensor, rows_tensor;

  Memory(const reference::Shape& shape, int rank) {
    const int64_t experts = shape.num_local_experts(rank);
    const int64_t capacity = shape.num_ranks * shape.max_tokens * shape.topk;
    x.resize(static_cast<size_t>(experts * capacity * shape.row_bytes()));
    rows.resize(x.size());
    y.resize(static_cast<size_t>(shape.max_tokens * shape.hidden * 2));
    num_rows.resize(static_cast<size_t>(experts));
    x_tensor = Tensor(x.data(), kBf16, {experts, capacity, shape.hidden});
    rows_tensor = Tensor(rows.data(), kBf16, {experts, capacity, shape.hidden});
  }
};

// Dispatches, checks every row against the reference, plays the experts, combines and checks every sum. Empty, or what
// went wrong.
std::string run_round(AllToAll& object, const reference::Shape& shape, const reference::Batch& batch, int rank,
                      Memory& memory) {
  reference::RankInput own = batch[static_cast<size_t>(rank)];
  const int64_t tokens = own.num_tokens;
  const int64_t capacity = memory.x_tensor.shape[1];
  DispatchInput in;
  in.x = Tensor(own.x.data(), kBf16, {tokens, shape.hidden});
  in.topk_idx = Tensor(own.topk_idx.data(), kI64, {tokens, shape.topk});
  in.topk_weights = Tensor(own.topk_weights.data(), kF32, {tokens, shape.topk});
  DispatchOutput out;
  out.x = memory.x_tensor;
  out.num_rows = Tensor(memory.num_rows.data(), kI32, {static_cast<int64_t>(memory.num_rows.size())});
  const Result<moeway_routing> routing = object.dispatch(in, out);
  if (!routing.ok()) return "dispatch: " + routing.status().to_string();
  const reference::Received expected = expected_dispatch(shape, batch, rank, capacity);
  if (memory.num_rows != expected.num_rows) return "num_rows";
  const auto row_bytes = static_cast<std::ptrdiff_t>(shape.row_bytes());
  for (const reference::Row& row : expected.rows) {
    const std::byte* sent = batch[static_cast<size_t>(row.source)].x.data() + row.token * row_bytes;
    const std::byte* got = memory.x.data() + row.position * row_bytes;
    if (!std::equal(got, got + row_bytes, sent)) return "row " + std::to_string(row.position);
    const auto result = expert_row(shape, reference::Values::kExact, row.expert, got, nullptr);
    std::copy(result.begin(), result.end(), memory.rows.data() + row.position * row_bytes);
  }
  const Tensor y(memory.y.data(), kBf16, {tokens, shape.hidden});
  if (const Status s = object.combine(routing.value(), memory.rows_tensor, nullptr, y, false); !s.ok())
    return "combine: " + s.to_string();
  const std::vector<std::byte> sums = expected_combine(shape, reference::Values::kExact, own);
  return std::equal(sums.begin(), sums.end(), memory.y.begin()) ? "" : "y";
}

std::string run_rank(const ThreadGroup& group, int rank, uint64_t first_epoch) {
  const reference::Shape shape = shape_of_job();
  Result<Bootstrap> bootstrap = Bootstrap::threads(group, rank);
  if (!bootstrap.ok()) return bootstrap.status().to_string();
  Result<moeway::Communicator> communicator = moeway::Communicator::create(std::move(bootstrap).value());
  if (!communicator.ok()) return communicator.status().to_string();
  Hooks hooks;
  hooks.first_epoch = first_epoch;
  Result<std::unique_ptr<AllToAll>> object =
      AllToAll::create(communicator.value().get()->core, config_of(shape), hooks);
  if (!object.ok()) return object.status().to_string();
  Memory memory(shape, rank);
  for (int round = 0; round < kNumRounds; ++round) {
    const reference::Batch batch =
        make_batch(shape, reference::Values::kExact, reference::Routes::kMixed,
                   make_num_tokens(shape, reference::Tokens::kRandom, first_epoch, round), first_epoch, round);
    const std::string failure = run_round(*object.value(), shape, batch, rank, memory);
    if (!failure.empty()) return "round " + std::to_string(round) + ": " + failure;
  }
  return "";
}

void run_from(uint64_t first_epoch) {
  const ThreadGroup group(kNumRanks);
  std::vector<std::string> failures(kNumRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kNumRanks; ++rank)
    threads.emplace_back([&, rank] { failures[static_cast<size_t>(rank)] = run_rank(group, rank, first_epoch); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "") << "counter from " << first_epoch;
}

TEST(RoundCounter, GoesOnBeyondTwoToThe31) { run_from((uint64_t{1} << 31) - 5); }
TEST(RoundCounter, GoesOnBeyondTwoToThe32) { run_from((uint64_t{1} << 32) - 5); }
TEST(RoundCounter, GoesOnBeyondTwoToThe63) { run_from((uint64_t{1} << 63) - 5); }

}  // namespace
}  // namespace moeway::core
