// Checks a caller's routing where the host can read it, before anything is sent.
#pragma once

#include <moeway/status.h>

#include "kernels/direct/dispatch_args.h"

namespace moeway::core {

// Every id is -1 or an expert; with distinct_experts, no token names one twice. Names the first that is not.
Status check_routes(const kernels::direct::IndexView& topk_idx, int64_t num_tokens, int32_t topk, int32_t num_experts,
                    bool distinct);

}  // namespace moeway::core
