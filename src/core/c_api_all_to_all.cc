// C interface: AllToAll.
#include <moeway/c_api.h>

#include <algorithm>
#include <utility>

#include "base/env.h"
#include "base/format.h"
#include "core/c_api_call.h"
#include "core/c_api_objects.h"
#include "core/plan.h"
#include "exec/trace_range.h"

using moeway::error;
using moeway::invalid_argument;
using moeway::Result;
using moeway::Status;
using moeway::core::AllToAll;
using moeway::core::c_call;
using moeway::core::null_argument;
using moeway::core::or_abandon;
using moeway::exec::TraceRange;

namespace {

// An argument that must not be null.
struct Given {
  const char* name;
  const void* pointer;
};

// `work(AllToAll&)` on the object behind a handle, once the arguments are there.
template <class Work>
moeway_status on_object(const moeway_all_to_all* handle, std::initializer_list<Given> arguments, Work work) {
  return c_call([&]() -> Status {
    if (handle == nullptr) return null_argument("all_to_all");
    for (const Given& argument : arguments) {
      if (argument.pointer == nullptr) return null_argument(argument.name);
    }
    if (handle->core->is_forks_copy()) {
      return error(MOEWAY_WRONG_STATE,
                   "this process is a fork of the one that made the object, and no rank: it can only let it go");
    }
    return work(*handle->core);
  });
}

Status store_routing(Result<moeway_routing> made, moeway_routing* routing) {
  if (!made.ok()) return made.status();
  *routing = made.value();
  return {};
}

}  // namespace

moeway_status moeway_all_to_all_get_sizes(const moeway_all_to_all_config* config, int32_t rank, int32_t num_ranks,
                                          moeway_all_to_all_sizes* sizes) {
  return c_call([&]() -> Status {
    if (config == nullptr) return null_argument("config");
    if (sizes == nullptr) return null_argument("sizes");
    if (sizes->struct_size != sizeof(*sizes)) {
      return invalid_argument("sizes.struct_size is {}, expected {}", sizes->struct_size, sizeof(*sizes));
    }
    const auto plan = moeway::core::make_plan(*config, rank, num_ranks);
    if (!plan.ok()) return plan.status();
    *sizes = plan.value().sizes;
    return {};
  });
}

moeway_status moeway_all_to_all_create(moeway_communicator* communicator, const moeway_all_to_all_config* config,
                                       moeway_all_to_all** all_to_all) {
  const TraceRange range("moeway all_to_all_create");
  return c_call([&]() -> Status {
    if (all_to_all != nullptr) *all_to_all = nullptr;
    if (communicator == nullptr) return null_argument("communicator");
    if (communicator->core == nullptr) return error(MOEWAY_WRONG_STATE, "the communicator is closed");
    return or_abandon(communicator->core->collective(), [&]() -> Status {
      // The others are on their way: they hear of a mistake rather than wait.
      if (config == nullptr) return AllToAll::refuse(*communicator->core, null_argument("config"));
      if (all_to_all == nullptr) return AllToAll::refuse(*communicator->core, null_argument("all_to_all"));
      auto created = AllToAll::create(communicator->core, *config);
      if (!created.ok()) return created.status();
      *all_to_all = new moeway_all_to_all{std::move(created).value()};
      return {};
    });
  });
}

moeway_status moeway_dispatch_send(moeway_all_to_all* all_to_all, const moeway_dispatch_input* input,
                                   moeway_routing* routing) {
  const TraceRange range("moeway dispatch_send");
  return on_object(all_to_all, {{"input", input}, {"routing", routing}},
                   [&](AllToAll& object) { return store_routing(object.dispatch_send(*input), routing); });
}

moeway_status moeway_dispatch_recv(moeway_all_to_all* all_to_all, moeway_routing routing,
                                   const moeway_dispatch_output* output) {
  const TraceRange range("moeway dispatch_recv");
  return on_object(all_to_all, {{"output", output}},
                   [&](AllToAll& object) { return object.dispatch_recv(routing, *output); });
}

moeway_status moeway_combine_send(moeway_all_to_all* all_to_all, moeway_routing routing, const moeway_tensor* rows) {
  const TraceRange range("moeway combine_send");
  return on_object(all_to_all, {{"rows", rows}}, [&](AllToAll& object) { return object.combine_send(routing, *rows); });
}

moeway_status moeway_combine_recv(moeway_all_to_all* all_to_all, moeway_routing routing,
                                  const moeway_tensor* topk_weights, const moeway_tensor* y) {
  const TraceRange range("moeway combine_recv");
  return on_object(all_to_all, {{"y", y}},
                   [&](AllToAll& object) { return object.combine_recv(routing, topk_weights, *y, false); });
}

moeway_status moeway_combine_recv_add(moeway_all_to_all* all_to_all, moeway_routing routing,
                                      const moeway_tensor* topk_weights, const moeway_tensor* y) {
  const TraceRange range("moeway combine_recv_add");
  return on_object(all_to_all, {{"y", y}},
                   [&](AllToAll& object) { return object.combine_recv(routing, topk_weights, *y, true); });
}

moeway_status moeway_dispatch(moeway_all_to_all* all_to_all, const moeway_dispatch_input* input,
                              const moeway_dispatch_output* output, moeway_routing* routing) {
  const TraceRange range("moeway dispatch");
  return on_object(all_to_all, {{"input", input}, {"output", output}, {"routing", routing}},
                   [&](AllToAll& object) { return store_routing(object.dispatch(*input, *output), routing); });
}

moeway_status moeway_combine(moeway_all_to_all* all_to_all, moeway_routing routing, const moeway_tensor* rows,
                             const moeway_tensor* topk_weights, const moeway_tensor* y) {
  const TraceRange range("moeway combine");
  return on_object(all_to_all, {{"rows", rows}, {"y", y}},
                   [&](AllToAll& object) { return object.combine(routing, *rows, topk_weights, *y, false); });
}

moeway_status moeway_combine_add(moeway_all_to_all* all_to_all, moeway_routing routing, const moeway_tensor* rows,
                                 const moeway_tensor* topk_weights, const moeway_tensor* y) {
  const TraceRange range("moeway combine_add");
  return on_object(all_to_all, {{"rows", rows}, {"y", y}},
                   [&](AllToAll& object) { return object.combine(routing, *rows, topk_weights, *y, true); });
}

moeway_status moeway_dispatch_view(moeway_all_to_all* all_to_all, moeway_routing routing, moeway_tensor* x,
                                   moeway_tensor* scales) {
  return on_object(all_to_all, {{"x", x}}, [&](AllToAll& object) { return object.dispatch_view(routing, x, scales); });
}

moeway_status moeway_all_to_all_set_stream(moeway_all_to_all* all_to_all, void* stream) {
  return on_object(all_to_all, {}, [&](AllToAll& object) { return object.set_stream(stream); });
}

moeway_status moeway_all_to_all_status(moeway_all_to_all* all_to_all) {
  return on_object(all_to_all, {}, [](AllToAll& object) { return object.status(); });
}

moeway_status moeway_all_to_all_get_stats(const moeway_all_to_all* all_to_all, moeway_all_to_all_stats* stats) {
  return on_object(all_to_all, {{"stats", stats}}, [&](const AllToAll& object) -> Status {
    if (stats->struct_size != sizeof(*stats)) {
      return invalid_argument("stats.struct_size is {}, expected {}", stats->struct_size, sizeof(*stats));
    }
    const Result<moeway_all_to_all_stats> counted = object.stats();
    if (!counted.ok()) return counted.status();
    *stats = counted.value();
    return {};
  });
}

moeway_status moeway_all_to_all_get_peer_stats(const moeway_all_to_all* all_to_all, int32_t num_ranks,
                                               moeway_peer_stats* stats) {
  return on_object(all_to_all, {{"stats", stats}}, [&](const AllToAll& object) -> Status {
    if (num_ranks != object.num_ranks()) {
      return invalid_argument("num_ranks is {}, expected {}, the number of ranks", num_ranks, object.num_ranks());
    }
    for (int32_t r = 0; r < num_ranks; ++r) {
      if (stats[r].struct_size == sizeof(*stats)) continue;
      return invalid_argument("stats[{}].struct_size is {}, expected {}: fill it with moeway_peer_stats_init", r,
                              stats[r].struct_size, sizeof(*stats));
    }
    const auto counted = object.peer_stats();
    if (!counted.ok()) return counted.status();
    std::copy(counted.value().begin(), counted.value().end(), stats);
    return {};
  });
}

moeway_status moeway_all_to_all_close(moeway_all_to_all* all_to_all) {
  const TraceRange range("moeway all_to_all_close");
  return c_call([&]() -> Status {
    if (all_to_all == nullptr) return null_argument("all_to_all");
    all_to_all->core->close();
    return {};
  });
}

void moeway_all_to_all_destroy(moeway_all_to_all* all_to_all) { delete all_to_all; }
