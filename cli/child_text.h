// Runs code that may crash or hang in a process of its own.
#pragma once

#include <moeway/status.h>

#include <chrono>
#include <functional>
#include <string>

namespace moeway::cli {

// What `work` returned in a child process, or how the child ended instead. Fork rules apply: no second thread yet.
Result<std::string> text_from_child(const std::function<std::string()>& work, std::chrono::milliseconds limit);

}  // namespace moeway::cli
