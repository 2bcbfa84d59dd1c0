// What a kernel reported, in words.
#pragma once

#include <moeway/status.h>

#include <chrono>
#include <cstdint>

#include "exec/report.h"

namespace moeway::core {

// `rank` is the rank that failed. The round and the phase follow from what was waited for.
Status describe(const exec::Failure& failure, int rank, std::chrono::milliseconds timeout);

}  // namespace moeway::core
