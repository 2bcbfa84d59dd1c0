// Messages: fmt, and the shortest way to a Status with numbers in its message.
#pragma once

#include <fmt/format.h>
#include <moeway/status.h>

#include <utility>

namespace moeway {

template <class... Args>
Status error(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
Status invalid_argument(fmt::format_string<Args...> format, Args&&... args) {
  return error(MOEWAY_INVALID_ARGUMENT, format, std::forward<Args>(args)...);
}

// An operating-system call failed: "memfd_create: Permission denied". Read errno before anything else can change it.
Status system_error(const char* call, int error_number, StatusCode code = MOEWAY_INTERNAL);

}  // namespace moeway
