// What ranks tell each other when a communicator and an AllToAll are made: where they are, what they ask for, how their
// part went. Peers say anything.
#include <moeway/c_api.h>

#include <memory>

#include "core/all_to_all.h"
#include "core/communicator.h"
#include "fuzz/scripted_collective.h"

namespace moeway::fuzz {
namespace {

constexpr int64_t kTimeoutMs = 5;

// Byte 0: the rank, byte 1: how many there are; then the collective's script.
void run(Bytes bytes) {
  Input input(bytes);
  const int rank = input.below_or_at(2);
  const int num_ranks = std::max(rank + 1, 2) + input.below_or_at(1);
  moeway_communicator_options options;
  moeway_communicator_options_init(&options);
  options.timeout_ms = kTimeoutMs;
  const auto made = core::Communicator::create(std::make_unique<ScriptedCollective>(rank, num_ranks, input), options);
  require_readable(made.status());
  if (!made.ok()) return;
  moeway_all_to_all_config config;
  moeway_all_to_all_config_init(&config);
  config.num_experts = 4;
  config.topk = 2;
  config.hidden = 16;
  config.max_tokens = 2;
  config.timeout_ms = kTimeoutMs;
  const auto object = core::AllToAll::create(made.value(), config);
  require_readable(object.status());
}

const Registration kTarget("creation", run);

}  // namespace
}  // namespace moeway::fuzz
