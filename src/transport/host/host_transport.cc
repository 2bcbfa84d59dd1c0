#include "transport/host/host_transport.h"

#include "base/format.h"
#include "transport/host/process_transport.h"
#include "transport/host/thread_transport.h"
#include "transport/host/whereabouts.h"

namespace moeway::transport {

Result<std::unique_ptr<Transport>> make_host_transport(Collective& collective, Deadline deadline) {
  const Result<std::vector<Whereabouts>> ranks = collective.all_gather_value(whereabouts(), deadline);
  if (!ranks.ok()) return ranks.status();
  if (all_in_one_process(ranks.value())) return make_thread_transport();
  if (!all_on_one_machine(ranks.value())) {
    return error(MOEWAY_UNAVAILABLE, "the host transport reaches ranks on one machine only: {}",
                 who_is_where(ranks.value()));
  }
  return make_process_transport(ranks.value(), collective, deadline);
}

}  // namespace moeway::transport
