#include "core/communicator.h"

#include <utility>

#include "base/log.h"
#include "transport/host/host_transport.h"

namespace moeway::core {

Result<std::shared_ptr<Communicator>> Communicator::create(std::unique_ptr<Collective> collective,
                                                           std::chrono::milliseconds timeout) {
  auto transport = transport::make_host_transport(*collective, Deadline::after(timeout));
  if (!transport.ok()) return transport.status();
  log_info("rank {} of {}: transport {}", collective->rank(), collective->size(), transport.value()->name());
  return std::shared_ptr<Communicator>(new Communicator(std::move(collective), std::move(transport).value(), timeout));
}

}  // namespace moeway::core
