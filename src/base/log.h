// Lines on standard error, each with "moeway" and the process in front. What a caller must know is a Status, not a log
// line.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>

#include "base/env.h"

namespace moeway {

// Always written, in one piece.
template <class... Args>
void log_line(fmt::format_string<Args...> format, Args&&... args) {
  const std::string line = fmt::format("moeway[{}]: {}\n", getpid(), fmt::format(format, std::forward<Args>(args)...));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (env().log >= Env::Log::kInfo) log_line(format, std::forward<Args>(args)...);
}

}  // namespace moeway
