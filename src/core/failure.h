// What a kernel reported, in words.
#pragma once

#include <moeway/c_api.h>
#include <moeway/status.h>

#include "exec/report.h"

namespace moeway::core {

// `rank` is the rank that failed. The round and the phase follow from what was waited for.
Status describe(const exec::Failure& failure, int rank, const moeway_all_to_all_config& config);

}  // namespace moeway::core
