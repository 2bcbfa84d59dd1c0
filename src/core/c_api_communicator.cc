// C interface: how ranks meet, and communicators.
#include <moeway/c_api.h>

#include <chrono>
#include <memory>
#include <utility>

#include "base/env.h"
#include "base/format.h"
#include "bootstrap/bootstrap.h"
#include "core/c_api_call.h"
#include "core/c_api_objects.h"
#include "exec/trace_range.h"

using moeway::Collective;
using moeway::error;
using moeway::invalid_argument;
using moeway::Result;
using moeway::Status;
using moeway::core::c_call;
using moeway::core::null_argument;
using moeway::exec::TraceRange;

struct moeway_thread_group {
  std::shared_ptr<moeway::bootstrap::ThreadMeeting> meeting;
};

struct moeway_bootstrap {
  std::unique_ptr<Collective> collective;
};

namespace {

// `meet` returns a Result<unique_ptr<Collective>>.
template <class Meet>
moeway_status create_bootstrap(moeway_bootstrap** bootstrap, Meet meet) {
  return c_call([&]() -> Status {
    if (bootstrap == nullptr) return null_argument("bootstrap");
    *bootstrap = nullptr;
    Result<std::unique_ptr<Collective>> met = meet();
    if (!met.ok()) return met.status();
    *bootstrap = new moeway_bootstrap{std::move(met).value()};
    return {};
  });
}

// The caller's options, or the defaults.
Result<moeway_communicator_options> choose_options(const moeway_communicator_options* options) {
  moeway_communicator_options chosen;
  moeway_communicator_options_init(&chosen);
  if (options == nullptr) return chosen;
  if (options->struct_size != sizeof(*options)) {
    return invalid_argument("options.struct_size is {}, expected {}: fill it with moeway_communicator_options_init",
                            options->struct_size, sizeof(*options));
  }
  if (options->timeout_ms < 1) {
    return invalid_argument("options.timeout_ms is {}, expected at least 1", options->timeout_ms);
  }
  return *options;
}

}  // namespace

moeway_status moeway_thread_group_create(int32_t num_ranks, moeway_thread_group** group) {
  return c_call([&]() -> Status {
    if (group == nullptr) return null_argument("group");
    *group = nullptr;
    auto meeting = moeway::bootstrap::make_thread_meeting(num_ranks);
    if (!meeting.ok()) return meeting.status();
    *group = new moeway_thread_group{std::move(meeting).value()};
    return {};
  });
}

void moeway_thread_group_destroy(moeway_thread_group* group) { delete group; }

moeway_status moeway_bootstrap_create_threads(moeway_thread_group* group, int32_t rank, moeway_bootstrap** bootstrap) {
  return create_bootstrap(bootstrap, [&]() -> Result<std::unique_ptr<Collective>> {
    if (group == nullptr) return null_argument("group");
    return moeway::bootstrap::meet_threads(group->meeting, rank);
  });
}

moeway_status moeway_bootstrap_create_local(const char* directory, int32_t rank, int32_t num_ranks, int64_t timeout_ms,
                                            moeway_bootstrap** bootstrap) {
  return create_bootstrap(bootstrap, [&]() -> Result<std::unique_ptr<Collective>> {
    if (directory == nullptr) return null_argument("directory");
    return moeway::bootstrap::meet_local(directory, rank, num_ranks, std::chrono::milliseconds(timeout_ms));
  });
}

moeway_status moeway_bootstrap_create_tcp(const char* address, int32_t port, const char* secret, int32_t rank,
                                          int32_t num_ranks, int64_t timeout_ms, moeway_bootstrap** bootstrap) {
  return create_bootstrap(bootstrap, [&]() -> Result<std::unique_ptr<Collective>> {
    if (address == nullptr) return null_argument("address");
    if (secret == nullptr) return null_argument("secret");
    return moeway::bootstrap::meet_tcp(address, port, secret, rank, num_ranks, std::chrono::milliseconds(timeout_ms));
  });
}

moeway_status moeway_bootstrap_create_env(int64_t timeout_ms, moeway_bootstrap** bootstrap) {
  return create_bootstrap(bootstrap,
                          [&] { return moeway::bootstrap::meet_env(std::chrono::milliseconds(timeout_ms)); });
}

moeway_status moeway_bootstrap_create_callback(int32_t rank, int32_t num_ranks, moeway_all_gather_fn all_gather,
                                               void* context, moeway_bootstrap** bootstrap) {
  return create_bootstrap(bootstrap,
                          [&] { return moeway::bootstrap::meet_callback(rank, num_ranks, all_gather, context); });
}

void moeway_bootstrap_destroy(moeway_bootstrap* bootstrap) { delete bootstrap; }
int32_t moeway_bootstrap_rank(const moeway_bootstrap* bootstrap) {
  return bootstrap == nullptr ? -1 : bootstrap->collective->rank();
}
int32_t moeway_bootstrap_size(const moeway_bootstrap* bootstrap) {
  return bootstrap == nullptr ? -1 : bootstrap->collective->size();
}

moeway_status moeway_communicator_create(moeway_bootstrap* bootstrap, const moeway_communicator_options* options,
                                         moeway_communicator** communicator) {
  const TraceRange range("moeway communicator_create");
  const std::unique_ptr<moeway_bootstrap> taken(bootstrap);
  return c_call([&]() -> Status {
    if (communicator != nullptr) *communicator = nullptr;
    if (bootstrap == nullptr) return null_argument("bootstrap");
    Result<moeway_communicator_options> chosen = choose_options(options);
    if (communicator == nullptr) chosen = null_argument("communicator");
    const int rank = bootstrap->collective->rank(), size = bootstrap->collective->size();
    auto created = moeway::core::Communicator::create(std::move(bootstrap->collective), chosen);
    if (!created.ok()) return created.status();
    *communicator = new moeway_communicator{std::move(created).value(), rank, size};
    return {};
  });
}

int32_t moeway_communicator_rank(const moeway_communicator* communicator) {
  return communicator == nullptr ? -1 : communicator->rank;
}
int32_t moeway_communicator_size(const moeway_communicator* communicator) {
  return communicator == nullptr ? -1 : communicator->size;
}

const char* moeway_communicator_transport(const moeway_communicator* communicator) {
  if (communicator == nullptr || communicator->core == nullptr) return "none";
  return communicator->core->transport().name();
}

moeway_status moeway_communicator_barrier(moeway_communicator* communicator) {
  const TraceRange range("moeway communicator_barrier");
  return c_call([&]() -> Status {
    if (communicator == nullptr) return null_argument("communicator");
    if (communicator->core == nullptr) return error(MOEWAY_WRONG_STATE, "the communicator is closed");
    return communicator->core->collective().agree({}, communicator->core->deadline());
  });
}

moeway_status moeway_communicator_close(moeway_communicator* communicator) {
  return c_call([&]() -> Status {
    if (communicator == nullptr) return null_argument("communicator");
    // Objects that are still there keep the rest.
    if (communicator->core != nullptr) communicator->core->leave();
    communicator->core.reset();
    return {};
  });
}

void moeway_communicator_destroy(moeway_communicator* communicator) {
  if (communicator == nullptr) return;
  (void)moeway_communicator_close(communicator);
  delete communicator;
}
