#include "base/collective.h"

#include "base/format.h"
#include "base/status_bytes.h"

namespace moeway {
Status Collective::agree(const Status& mine, Deadline deadline) {
  const Result<std::vector<StatusBytes>> all = all_gather_value(StatusBytes::from(mine), deadline);
  if (!all.ok()) return mine.ok() ? all.status() : mine;
  for (int r = 0; r < size(); ++r) {
    const StatusBytes& other = all.value()[static_cast<size_t>(r)];
    if (other.ok()) continue;
    const Status failure = other.failure();
    return error(failure.code(), "rank {}: {}", r, failure.message());
  }
  return {};
}

}  // namespace moeway
