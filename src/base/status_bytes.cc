#include "base/status_bytes.h"

#include <algorithm>
#include <cstring>

#include "base/foreign_text.h"

namespace moeway {

StatusBytes StatusBytes::from(const Status& status) {
  StatusBytes bytes{static_cast<uint32_t>(status.code()), {}};
  const size_t length = std::min(status.message().size(), bytes.message.size() - 1);
  std::memcpy(bytes.message.data(), status.message().data(), length);
  return bytes;
}

Status StatusBytes::failure() const {
  const bool known = code > MOEWAY_OK && code <= MOEWAY_INTERNAL;
  std::string text = printable(text_of(message));
  if (text.empty()) text = "a failure without a message";
  return Status(known ? static_cast<StatusCode>(code) : MOEWAY_INTERNAL, std::move(text));
}

}  // namespace moeway
