#include "cli/soak/iteration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/random.h"
#include "cli/router.h"
#include "cli/shape_options.h"
#include "cli/terminal.h"

namespace moeway::cli {
namespace {

constexpr uint64_t kMostObjects = 3;
constexpr int64_t kMostRounds = 12;
constexpr double kMostBytes = 192 << 20;  // Of all ranks and objects of an iteration.

template <class T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[random.below(values.size())];
}
bool once_in(Random& random, uint64_t times) { return random.below(times) == 0; }

// From 1 to `most`: each order of magnitude as likely as the others, `most` itself more often.
int64_t draw_size(Random& random, int64_t most) {
  if (once_in(random, 4)) return most;
  const double size = std::exp(random.uniform() * std::log(static_cast<double>(most) + 1));
  return std::clamp(static_cast<int64_t>(size), int64_t{1}, most);
}

ShapeOptions draw_shape(Random& random, int64_t most_hidden) {
  ShapeOptions shape;
  // Whole units and whole blocks of scales go other ways than the rest.
  const auto multiple = one_of<int64_t>(random, {1, 1, 8, 128});
  shape.hidden = std::min((draw_size(random, most_hidden) + multiple - 1) / multiple * multiple, most_hidden);
  shape.dtype = dispatch_type_names()[random.below(dispatch_type_names().size())].second;
  shape.layout = layout_names()[random.below(layout_names().size())].second;
  if (shape.layout != kTokenMajor) shape.weights = one_of(random, {kWeightsAtDispatch, kWeightsAtCombine});
  if (shape.layout == kExpertPacked) shape.alignment = one_of<int64_t>(random, {1, 7, 16, 128});
  if (once_in(random, 2)) shape.rows_dtype = one_of(random, {kBf16, kF16, kF32});
  if (once_in(random, 2)) shape.out_dtype = one_of(random, {kBf16, kF16, kF32});
  if (shape.dtype == DispatchType::kBytes) {
    shape.token_bytes = draw_size(random, 2 * most_hidden);
    shape.scale_bytes = one_of<int64_t>(random, {0, 1, 16, 33});
  }
  return shape;
}

// Every token has `expert` among its experts.
void heat(Routes& routes, int32_t expert) {
  const auto topk = static_cast<size_t>(routes.topk);
  for (auto& cycle : routes.of_rank)
    for (Batch& batch : cycle)
      for (size_t t = 0; t < static_cast<size_t>(batch.num_tokens); ++t) {
        const auto first = batch.experts.begin() + static_cast<ptrdiff_t>(t * topk);
        if (std::find(first, first + static_cast<ptrdiff_t>(topk), expert) == first + static_cast<ptrdiff_t>(topk))
          *first = expert;
      }
}

// Routings that a router makes seldom, and that a library has to bear.
void make_uneven(Routes& routes, Random& random) {
  const auto each_batch = [&](auto change) {
    for (auto& cycle : routes.of_rank)
      for (Batch& batch : cycle) change(batch);
  };
  if (once_in(random, 3)) heat(routes, static_cast<int32_t>(random.below(static_cast<uint64_t>(routes.num_experts))));
  if (once_in(random, 4)) {  // Routes are missing.
    each_batch([&](Batch& batch) {
      for (int32_t& expert : batch.experts)
        if (once_in(random, 4)) expert = -1;
    });
  }
  if (once_in(random, 6)) {  // An expert twice in a token.
    each_batch([&](Batch& batch) {
      for (size_t i = 1; i < batch.experts.size(); ++i)
        if (i % static_cast<size_t>(routes.topk) != 0 && once_in(random, 8)) batch.experts[i] = batch.experts[i - 1];
    });
  }
  const uint64_t empty = one_of<uint64_t>(random, {0, 0, 0, 2, 1});  // One batch in so many has no tokens; 0: none.
  if (empty == 0) return;
  each_batch([&](Batch& batch) {
    if (once_in(random, empty)) batch = Batch{};
  });
}

// A divisor of the number of ranks: mostly 1.
int32_t draw_replicas(Random& random, int num_ranks) {
  if (!once_in(random, 3)) return 1;
  int32_t replicas = 1;
  do replicas = static_cast<int32_t>(1 + random.below(static_cast<uint64_t>(num_ranks)));
  while (num_ranks % replicas != 0);
  return replicas;
}

double bytes_of(const AllToAllConfig& config, int num_ranks) {
  double bytes = 0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const Result<AllToAllSizes> sizes = all_to_all_sizes(config, rank, num_ranks);
    if (!sizes.ok()) return HUGE_VAL;
    bytes += static_cast<double>(sizes.value().heap_bytes) + static_cast<double>(sizes.value().workspace_bytes) +
             buffers_bytes(config, sizes.value());
  }
  return bytes;
}

void draw_object(Random& random, const SoakLimits& limits, int num_ranks, double most_bytes, Routes& routes,
                 ObjectJob& object) {
  AllToAllConfig config = config_of(draw_shape(random, limits.hidden));
  RouterOptions router;
  config.replicas = draw_replicas(random, num_ranks);
  router.num_ranks = num_ranks / config.replicas;
  router.num_experts = static_cast<int32_t>(draw_size(random, limits.experts));
  router.topk = static_cast<int32_t>(draw_size(random, std::min(limits.topk, router.num_experts)));
  router.tokens = draw_size(random, limits.tokens);
  router.rounds = object.rounds;
  router.skew = one_of(random, {0.0, 0.8, 2.0, 4.0});
  router.ragged = once_in(random, 2);
  router.seed = random.next() >> 1;
  config.num_experts = router.num_experts;
  config.topk = router.topk;
  config.max_tokens = router.tokens;
  while (bytes_of(config, num_ranks) > most_bytes && config.max_tokens > 1) config.max_tokens /= 2;
  while (bytes_of(config, num_ranks) > most_bytes && config.topk > 1) config.topk /= 2;
  while (bytes_of(config, num_ranks) > most_bytes && config.hidden > 1) {
    config.hidden /= 2;
    config.token_bytes = (config.token_bytes + 1) / 2;
  }
  router.tokens = config.max_tokens;
  router.topk = config.topk;
  routes = skewed_routes(router);
  routes.replicas = config.replicas;
  make_uneven(routes, random);
  summarise(routes);
  routes.max_tokens = config.max_tokens;  // Also if no batch came out as large.
  config.distinct_experts = routes.distinct_experts && once_in(random, 2) ? 1 : 0;
  if (config.layout != kTokenMajor && once_in(random, 3)) {  // From nearly nothing to more than can come.
    config.max_recv_tokens = config.alignment * draw_size(random, 2 * num_ranks * config.max_tokens);
    config.overflow = kOverflowDrop;
  }
  config.execution = one_of(random, {kFibers, kFibers, kFibers, kThreads, kLanes});
  config.num_warps = static_cast<int32_t>(1 + random.below(config.execution == kFibers ? 8 : 3));
  config.timeout_ms = limits.timeout.count();
  object.config = config;
  object.routes = &routes;
  object.seed = random.next() >> 1;
}

}  // namespace

std::vector<const ObjectJob*> Iteration::objects() const {
  std::vector<const ObjectJob*> all{&job};
  for (const ObjectJob& object : job.others) all.push_back(&object);
  return all;
}

std::unique_ptr<Iteration> draw_iteration(const SoakLimits& limits, uint64_t seed, int64_t number) {
  auto iteration = std::make_unique<Iteration>();
  Random random(mix({seed, static_cast<uint64_t>(number)}));
  iteration->number = number;
  iteration->ranks = static_cast<int>(draw_size(random, limits.ranks));
  iteration->as_threads = limits.as_threads.value_or(once_in(random, 2));
  RankJob& job = iteration->job;
  job.rounds = 1 + static_cast<int64_t>(random.below(kMostRounds));
  job.timeout = limits.timeout;
  job.devices = limits.devices;
  job.disturbance.seed = random.next();
  job.disturbance.most_us = one_of<int64_t>(random, {0, 0, 100, 1000, 10'000});
  if (once_in(random, 2))
    job.disturbance.rank = static_cast<int>(random.below(static_cast<uint64_t>(iteration->ranks)));
  const uint64_t num_objects = once_in(random, 2) ? 1 : 1 + random.below(kMostObjects);
  iteration->routes.resize(num_objects);
  job.others.resize(num_objects - 1);
  for (size_t i = 0; i < num_objects; ++i) {
    ObjectJob& object = i == 0 ? job : job.others[i - 1];
    object.rounds = job.rounds;
    draw_object(random, limits, iteration->ranks, kMostBytes / static_cast<double>(num_objects), iteration->routes[i],
                object);
  }
  return iteration;
}

std::string iteration_text(const Iteration& iteration) {
  const Disturbance& disturbance = iteration.job.disturbance;
  std::string text =
      fmt::format("iteration {}: {} as {}, {}, {}", iteration.number, counted(iteration.ranks, "rank"),
                  iteration.as_threads ? "threads" : "processes", counted(iteration.job.rounds, "round"),
                  disturbance.most_us == 0 ? "no delays" : fmt::format("delays of up to {} us", disturbance.most_us));
  if (disturbance.most_us > 0 && disturbance.rank >= 0) text += fmt::format(" on rank {}", disturbance.rank);
  size_t index = 0;
  for (const ObjectJob* object : iteration.objects()) {
    const AllToAllConfig& config = object->config;
    text += fmt::format(
        "\n  object {}: {} experts, top-{}, hidden {}, at most {}; dispatch {}{}, rows {}, sums {}; {}, weights at {}; "
        "{}, {}",
        index++, config.num_experts, config.topk, config.hidden, counted(config.max_tokens, "token"),
        moeway_dtype_name(config.dispatch_dtype),
        config.scales == kScalesNone ? "" : fmt::format(" + {} scales", scales_name(config.scales)),
        moeway_dtype_name(config.row_dtype), moeway_dtype_name(config.output_dtype), layout_name(config.layout),
        weights_name(config.weights), execution_name(config.execution), counted(config.num_warps, "warp"));
  }
  return text;
}

nlohmann::json iteration_json(const Iteration& iteration) {
  nlohmann::json objects = nlohmann::json::array();
  for (const ObjectJob* object : iteration.objects()) {
    nlohmann::json shape = shape_json(object->config);
    shape["execution"] = execution_name(object->config.execution);
    shape["warps"] = object->config.num_warps;
    shape["seed"] = object->seed;
    objects.push_back(std::move(shape));
  }
  const Disturbance& disturbance = iteration.job.disturbance;
  return {{"number", iteration.number},
          {"ranks", iteration.ranks},
          {"ranks_as", iteration.as_threads ? "threads" : "processes"},
          {"rounds", iteration.job.rounds},
          {"delay_us", disturbance.most_us},
          {"delayed_rank", disturbance.rank},
          {"objects", std::move(objects)}};
}

}  // namespace moeway::cli
