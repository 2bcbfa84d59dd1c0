// One line of a route file, a JSON object, in one of two forms:
//   a batch:  {"step": 0, "layer": 0, "rank": 0, "num_tokens": 2, "topk": 2, "num_experts": 4,
//              "top_indices": [[0, 3], [1, 2]], "top_weights": [[0.6, 0.4], [0.9, 0.1]]}
//   a token:  {"layer": 0, "topk_ids": [0, 3], "topk_weights": [0.6, 0.4]}
// as Megatron-LM's router tracer and loggers inside vLLM write them. docs/command-line.md says what each field means.
#pragma once

#include <moeway/status.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeway::cli {

struct RouteRecord {
  bool has_routes = false;  // False: a line of another kind ("type": "meta", for example).
  bool is_batch = false;    // Else a token.
  std::optional<int64_t> layer, rank, num_experts;
  int64_t num_tokens = 0;
  int32_t topk = 0;              // 0 where the record has no token and does not say.
  std::vector<int32_t> experts;  // [num_tokens, topk], -1 for no route.
  std::vector<float> weights;    // The same, or empty.
};

// An error names the field, its value and what was expected; the caller adds file and line. What the line alone cannot
// tell (ids against the number of experts of the file, topk against the other lines) is the caller's to check.
Result<RouteRecord> parse_route_record(std::string_view line);

}  // namespace moeway::cli
