// What a kernel reported, in words.
#pragma once

#include <moeway/status.h>

#include <chrono>
#include <cstdint>

#include "exec/report.h"

namespace moeway::core {

// `call` is the caller's call, `dispatch` the number of its round, `rank` the rank that failed.
Status describe(const exec::Failure& failure, const char* call, uint64_t dispatch, int rank,
                std::chrono::milliseconds timeout);

}  // namespace moeway::core
