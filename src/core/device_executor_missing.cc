// A build without CUDA: what it says when it is asked for a device.
#include "base/format.h"
#include "core/device_executor.h"

namespace moeway::core {
namespace {

Status missing() {
  return error(MOEWAY_UNAVAILABLE, "this build of moeway has no CUDA (MOEWAY_CUDA): device_type must be CPU");
}

}  // namespace

Result<std::unique_ptr<Executor>> make_device_executor(const Plan&, int, int, const transport::SymmetricHeap&,
                                                       const transport::Transport&, const Hooks&) {
  return missing();
}

// Collective like its other form: ranks of other builds hear of it.
Result<std::unique_ptr<transport::Transport>> make_device_transport(int, Collective& collective, Deadline deadline) {
  if (Status s = collective.agree(missing(), deadline); !s.ok()) return s;
  return missing();
}

}  // namespace moeway::core
