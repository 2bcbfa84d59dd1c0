// One round between four ranks, here threads: a token to two experts each, and the weighted sum of what they make of it
// back. In a job of processes, Bootstrap::env() takes the place of Bootstrap::threads().
#include <moeway/moeway.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

using namespace moeway;

template <class T>
T must(Result<T> result) {
  if (!result.ok()) std::puts(result.status().to_string().c_str()), std::exit(1);
  return std::move(result).value();
}

void run_rank(const ThreadGroup& group, int rank) {
  Communicator communicator = must(Communicator::create(must(Bootstrap::threads(group, rank))));
  AllToAllConfig config;
  config.num_experts = 8, config.topk = 2, config.hidden = 4, config.max_tokens = 1;
  config.dispatch_dtype = config.row_dtype = config.output_dtype = kF32;
  AllToAll all_to_all = must(AllToAll::create(communicator, config));
  const AllToAllSizes sizes = must(all_to_all_sizes(config, rank, 4));
  const int64_t local_experts = sizes.num_local_experts, capacity = sizes.expert_capacity, hidden = config.hidden;

  std::vector<float> x{1, 2, 3, 4}, weights{0.25, 0.75}, y(4), rows(static_cast<size_t>(sizes.max_rows * hidden));
  std::vector<int32_t> experts{rank, 7 - rank}, num_rows(static_cast<size_t>(local_experts));
  DispatchInput input;
  input.x = Tensor(x.data(), kF32, {1, hidden});
  input.topk_idx = Tensor(experts.data(), kI32, {1, 2});
  input.topk_weights = Tensor(weights.data(), kF32, {1, 2});
  DispatchOutput output;
  output.x = Tensor(rows.data(), kF32, {local_experts, capacity, hidden});
  output.num_rows = Tensor(num_rows.data(), kI32, {local_experts});

  const Routing routing = must(all_to_all.dispatch(input, output));
  for (float& value : rows) value *= 10;  // Instead of an expert.
  const Status combined = all_to_all.combine(routing, Tensor(output.x), Tensor(y.data(), kF32, {1, hidden}));
  if (!combined.ok()) std::puts(combined.to_string().c_str()), std::exit(1);
  std::printf("rank %d: y = %g %g %g %g\n", rank, y[0], y[1], y[2], y[3]);
}

int main() {
  const ThreadGroup group(4);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) ranks.emplace_back(run_rank, std::cref(group), rank);
  for (std::thread& rank : ranks) rank.join();
}
