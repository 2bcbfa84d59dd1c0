// Real routing decisions, as a router tracer writes them: one batch a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moeway::multi_rank {

struct TraceBatch {
  int64_t num_tokens = 0;
  std::vector<int64_t> topk_idx;    // [num_tokens, topk]
  std::vector<float> topk_weights;  // The same.
};

struct Trace {
  int num_experts = 0;
  int topk = 0;
  std::vector<TraceBatch> batches;
};

// Empty batches: the file is not there or holds none.
Trace read_trace(const std::string& path);

}  // namespace moeway::multi_rank
