#include "core/communicator.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/log.h"
#include "core/device_executor.h"
#include "transport/host/host_transport.h"

namespace moeway::core {

namespace {

// All ranks on CPUs, or all on CUDA devices.
Status check_device_types(const moeway_communicator_options& options, Collective& collective, Deadline deadline) {
  const Result<std::vector<int32_t>> types =
      collective.all_gather_value(static_cast<int32_t>(options.device_type), deadline);
  if (!types.ok()) return types.status();
  for (size_t r = 0; r < types.value().size(); ++r) {
    const int32_t type = types.value()[r];
    if (type != MOEWAY_CPU && type != MOEWAY_CUDA) {
      return invalid_argument("options.device_type of rank {} is {}, expected CPU (0) or CUDA (1)", r, type);
    }
    if (type != types.value()[0]) {
      return error(MOEWAY_MISMATCH, "options.device_type must be equal on all ranks: rank 0 has {}, rank {} has {}",
                   types.value()[0], r, type);
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<Communicator>> Communicator::create(std::unique_ptr<Collective> collective,
                                                           const Result<moeway_communicator_options>& given) {
  moeway_communicator_options options;
  moeway_communicator_options_init(&options);
  if (given.ok()) options = given.value();
  const auto deadline = [&] { return Deadline::after(std::chrono::milliseconds(options.timeout_ms)); };
  if (Status s = collective->agree(given.status(), deadline()); !s.ok()) return s;
  if (Status s = check_device_types(options, *collective, deadline()); !s.ok()) return s;
  auto transport = options.device_type == MOEWAY_CUDA
                       ? make_device_transport(options.device_index, *collective, deadline())
                       : transport::make_host_transport(*collective, deadline());
  if (!transport.ok()) return transport.status();
  log_info("rank {} of {}: transport {}", collective->rank(), collective->size(), transport.value()->name());
  return std::shared_ptr<Communicator>(new Communicator(std::move(collective), std::move(transport).value(), options));
}

}  // namespace moeway::core
