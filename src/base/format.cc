#include "base/format.h"

#include <system_error>

namespace moeway {

Status system_error(const char* call, int error_number, StatusCode code) {
  // std::strerror is not thread-safe; the generic category's message is.
  return error(code, "{}: {} (errno {})", call, std::generic_category().message(error_number), error_number);
}

}  // namespace moeway
