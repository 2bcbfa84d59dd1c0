#include "core/routes.h"

#include "base/format.h"

namespace moeway::core {

Status check_routes(const kernels::direct::IndexView& topk_idx, int64_t num_tokens, int32_t topk, int32_t num_experts,
                    bool distinct) {
  for (int64_t token = 0; token < num_tokens; ++token) {
    for (int64_t k = 0; k < topk; ++k) {
      const int64_t id = topk_idx.at(token, k);
      if (id < -1 || id >= num_experts) {
        return invalid_argument("topk_idx[{}, {}] is {}, expected -1 (no route) or an expert from 0 to {}", token, k,
                                id, num_experts - 1);
      }
      if (!distinct || id < 0) continue;
      for (int64_t j = 0; j < k; ++j) {
        if (topk_idx.at(token, j) != id) continue;
        return invalid_argument(
            "topk_idx[{}, {}] is {} again (k = {} has it), expected distinct experts: distinct_experts is set", token,
            k, id, j);
      }
    }
  }
  return {};
}

}  // namespace moeway::core
