// A caller's own all-gather, for jobs whose ranks know each other already.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "bootstrap/counted_collective.h"

namespace moeway::bootstrap {
namespace {

class CallbackCollective final : public CountedCollective {
 public:
  CallbackCollective(int rank, int num_ranks, moeway_all_gather_fn function, void* context)
      : CountedCollective(rank, num_ranks), all_gather_(function), context_(context) {}

 private:
  // The deadline is out of this library's hands here: the caller's function decides how long it waits.
  Status gather(const void* in, size_t bytes, void* out, Deadline) override {
    const int32_t outcome = all_gather_(context_, in, bytes, out);
    if (outcome != 0) {
      return error(MOEWAY_PEER_LOST, "the caller's all-gather returned {} in call {} ({} bytes a rank), expected 0",
                   outcome, call(), bytes);
    }
    const auto* const own = static_cast<const std::byte*>(out) + static_cast<size_t>(rank()) * bytes;
    if (bytes > 0 && std::memcmp(own, in, bytes) != 0) {
      return error(MOEWAY_MISMATCH,
                   "the caller's all-gather did not put the bytes of rank {} at place {} of {}, expected all ranks' "
                   "bytes in rank order",
                   rank(), rank(), size());
    }
    return {};
  }
  // The others hear nothing: their all-gather is the caller's.
  void leave(const Status&) override {}

  const moeway_all_gather_fn all_gather_;
  void* const context_;
};

}  // namespace

Result<std::unique_ptr<Collective>> meet_callback(int rank, int num_ranks, moeway_all_gather_fn all_gather,
                                                  void* context) {
  if (Status status = check_place(rank, num_ranks); !status.ok()) return status;
  if (all_gather == nullptr) return invalid_argument("all_gather is null, expected a function");
  return std::unique_ptr<Collective>(std::make_unique<CallbackCollective>(rank, num_ranks, all_gather, context));
}

}  // namespace moeway::bootstrap
