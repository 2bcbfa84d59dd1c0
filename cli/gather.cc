#include "cli/gather.h"

#include <moeway/all_to_all.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>

namespace moeway::cli {
namespace {

// An all-gather made of a dispatch: one token of `bytes` bytes, routed to one expert on every rank.
Status gather_bytes(Communicator& communicator, std::chrono::milliseconds timeout, const std::string& mine,
                    std::string& all) {
  const int64_t bytes = std::ssize(mine);
  const int32_t num_ranks = communicator.size();
  AllToAllConfig config;
  config.num_experts = config.topk = num_ranks;
  config.hidden = config.max_tokens = 1;
  config.dispatch_dtype = kBytes;
  config.token_bytes = bytes;
  config.layout = kTokenMajor;  // Row r is rank r's token.
  config.timeout_ms = timeout.count();
  Result<AllToAll> all_to_all = AllToAll::create(communicator, config);
  if (!all_to_all.ok()) return all_to_all.status();

  std::string token = mine;
  std::vector<int32_t> experts(static_cast<size_t>(num_ranks));
  std::iota(experts.begin(), experts.end(), 0);
  std::vector<float> weights(experts.size(), 1.0f), got_weights(experts.size() * experts.size());
  std::vector<int32_t> got_experts(experts.size() * experts.size()), num_rows(1);
  all.assign(static_cast<size_t>(num_ranks * bytes), '\0');
  DispatchInput input;
  input.x = Tensor(token.data(), kBytes, {1, bytes});
  input.topk_idx = Tensor(experts.data(), kI32, {1, num_ranks});
  input.topk_weights = Tensor(weights.data(), kF32, {1, num_ranks});
  DispatchOutput output;
  output.x = Tensor(all.data(), kBytes, {num_ranks, bytes});
  output.num_rows = Tensor(num_rows.data(), kI32, {1});
  output.topk_idx = Tensor(got_experts.data(), kI32, {num_ranks, num_ranks});
  output.topk_weights = Tensor(got_weights.data(), kF32, {num_ranks, num_ranks});
  const Result<Routing> routing = all_to_all.value().dispatch(input, output);
  return routing.status();
}

}  // namespace

Status gather_reports(Communicator& communicator, std::chrono::milliseconds timeout, const RankReport& mine,
                      std::vector<RankReport>& all) {
  std::string text = nlohmann::json(mine).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // The sizes first: a token has the same number of bytes on all ranks.
  int64_t longest = std::ssize(text);
  std::string gathered;
  const std::string size(reinterpret_cast<const char*>(&longest), sizeof(longest));
  if (Status status = gather_bytes(communicator, timeout, size, gathered); !status.ok()) return status;
  for (size_t at = 0; at < gathered.size(); at += sizeof(longest)) {
    int64_t theirs = 0;
    std::memcpy(&theirs, &gathered[at], sizeof(theirs));
    longest = std::max(longest, theirs);
  }
  text.resize(static_cast<size_t>(longest), ' ');  // JSON does not mind blanks at the end.
  if (Status status = gather_bytes(communicator, timeout, text, gathered); !status.ok()) return status;
  for (size_t at = 0; at < gathered.size(); at += text.size()) {
    const auto parsed = nlohmann::json::parse(std::string_view(gathered).substr(at, text.size()), nullptr, false);
    if (!parsed.is_object()) return Status(MOEWAY_INTERNAL, "a rank's report came damaged");
    all.push_back(parsed.get<RankReport>());
  }
  return Status();
}

}  // namespace moeway::cli
