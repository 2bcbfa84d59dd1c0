#include "base/collective.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/format.h"

namespace moeway {
namespace {

struct Outcome {
  StatusCode code;
  std::array<char, 508> message;  // Cut off where it is longer; always ends with a zero byte.
};

}  // namespace

Status Collective::agree(const Status& mine, Deadline deadline) {
  Outcome outcome{mine.code(), {}};
  const size_t length = std::min(mine.message().size(), outcome.message.size() - 1);
  std::memcpy(outcome.message.data(), mine.message().data(), length);
  const Result<std::vector<Outcome>> all = all_gather_value(outcome, deadline);
  if (!all.ok()) return mine.ok() ? all.status() : mine;
  for (int r = 0; r < size(); ++r) {
    const Outcome& other = all.value()[static_cast<size_t>(r)];
    if (other.code != MOEWAY_OK) return error(other.code, "rank {}: {}", r, other.message.data());
  }
  return {};
}

}  // namespace moeway
