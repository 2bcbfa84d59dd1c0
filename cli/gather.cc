#include "cli/gather.h"

#include <moeway/all_to_all.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>

namespace moeway::cli {
namespace {

// Memory in the ranks' place for one exchange.
class Blocks {
 public:
  explicit Blocks(Place& place) : place_(place) {}
  const Status& status() const { return status_; }
  // A tensor of the place; what `from` holds is copied there, if it is not null.
  Tensor take(DType dtype, std::initializer_list<int64_t> dims, const void* from = nullptr) {
    Tensor tensor(nullptr, dtype, dims);
    const int64_t bytes = bytes_of(tensor);
    const Result<std::byte*> memory = place_.allocate(bytes);
    if (status_.ok()) status_ = memory.status();
    if (status_.ok() && from != nullptr)
      status_ = place_.copy_in(memory.value(), static_cast<const std::byte*>(from), bytes);
    if (memory.ok()) tensor.data = memory.value();
    return place_.here(tensor);
  }
  static int64_t bytes_of(const Tensor& tensor) {
    int64_t bytes = moeway_dtype_bytes(tensor.dtype);
    for (int i = 0; i < tensor.ndim; ++i) bytes *= tensor.shape[i];
    return bytes;
  }

 private:
  Place& place_;
  Status status_;
};

// An all-gather made of a dispatch: one token of `bytes` bytes, routed to one expert on every rank.
Status gather_bytes(Communicator& communicator, Place& place, std::chrono::milliseconds timeout,
                    const std::string& mine, std::string& all) {
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
  if (Status status = all_to_all.value().set_stream(place.stream()); !status.ok()) return status;

  std::vector<int32_t> experts(static_cast<size_t>(num_ranks));
  std::iota(experts.begin(), experts.end(), 0);
  const std::vector<float> weights(experts.size(), 1.0f);
  Blocks blocks(place);
  DispatchInput input;
  input.x = blocks.take(kBytes, {1, bytes}, mine.data());
  input.topk_idx = blocks.take(kI32, {1, num_ranks}, experts.data());
  input.topk_weights = blocks.take(kF32, {1, num_ranks}, weights.data());
  DispatchOutput output;
  output.x = blocks.take(kBytes, {num_ranks, bytes});
  output.num_rows = blocks.take(kI32, {1});
  output.topk_idx = blocks.take(kI32, {num_ranks, num_ranks});
  output.topk_weights = blocks.take(kF32, {num_ranks, num_ranks});
  if (!blocks.status().ok()) return blocks.status();
  if (const Result<Routing> routing = all_to_all.value().dispatch(input, output); !routing.ok())
    return routing.status();
  if (Status status = place.synchronize(); !status.ok()) return status;
  if (Status status = all_to_all.value().status(); !status.ok()) return status;
  all.assign(static_cast<size_t>(num_ranks * bytes), '\0');
  return place.copy_out(reinterpret_cast<std::byte*>(all.data()), static_cast<const std::byte*>(output.x.data),
                        std::ssize(all));
}

}  // namespace

Status gather_reports(Communicator& communicator, Place& place, std::chrono::milliseconds timeout,
                      const RankReport& mine, std::vector<RankReport>& all) {
  std::string text = nlohmann::json(mine).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  // The sizes first: a token has the same number of bytes on all ranks.
  int64_t longest = std::ssize(text);
  std::string gathered;
  const std::string size(reinterpret_cast<const char*>(&longest), sizeof(longest));
  if (Status status = gather_bytes(communicator, place, timeout, size, gathered); !status.ok()) return status;
  for (size_t at = 0; at < gathered.size(); at += sizeof(longest)) {
    int64_t theirs = 0;
    std::memcpy(&theirs, &gathered[at], sizeof(theirs));
    longest = std::max(longest, theirs);
  }
  text.resize(static_cast<size_t>(longest), ' ');  // JSON does not mind blanks at the end.
  if (Status status = gather_bytes(communicator, place, timeout, text, gathered); !status.ok()) return status;
  for (size_t at = 0; at < gathered.size(); at += text.size()) {
    const auto parsed = nlohmann::json::parse(std::string_view(gathered).substr(at, text.size()), nullptr, false);
    if (!parsed.is_object()) return Status(MOEWAY_INTERNAL, "a rank's report came damaged");
    all.push_back(parsed.get<RankReport>());
  }
  return Status();
}

}  // namespace moeway::cli
