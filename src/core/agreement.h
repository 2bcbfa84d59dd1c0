// What all ranks must have set alike, compared at creation.
#pragma once

#include <moeway/c_api.h>
#include <moeway/status.h>

#include "base/collective.h"

namespace moeway::core {

// Collective. OK if every agreed field of the config is equal on all ranks; else, on all ranks, MOEWAY_MISMATCH with
// the first field that differs, its value on rank 0 and on the lowest rank that has another.
Status compare_configs(const moeway_all_to_all_config& config, Collective& collective, Deadline deadline);

}  // namespace moeway::core
