// One iteration of a soak: a job whose shape, routes and delays are drawn. It follows from the limits, the seed and its
// number alone, so that it can be repeated without those before it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/rank_job.h"

namespace moeway::cli {

// The largest of each that is drawn.
struct SoakLimits {
  int ranks = 8;
  int32_t experts = 64, topk = 8;
  int64_t tokens = 64;  // Of a rank in a round.
  int64_t hidden = 512;
  std::optional<bool> as_threads;  // Else drawn.
  std::vector<int> devices;        // As RankJob's.
  std::chrono::milliseconds timeout{kDefaultTimeout};
};

struct Iteration {
  Iteration() = default;
  Iteration(const Iteration&) = delete;  // `job` points to `routes`.
  Iteration& operator=(const Iteration&) = delete;

  int64_t number = 0;
  int ranks = 1;
  bool as_threads = false;
  std::vector<Routes> routes;  // Of each object.
  RankJob job;

  std::vector<const ObjectJob*> objects() const;
};

std::unique_ptr<Iteration> draw_iteration(const SoakLimits& limits, uint64_t seed, int64_t number);

// A line for the job and one for each of its objects.
std::string iteration_text(const Iteration& iteration);
nlohmann::json iteration_json(const Iteration& iteration);

}  // namespace moeway::cli
