// A Status as it travels from process to process: of fixed size, and safe to read whatever has come.
#pragma once

#include <moeway/status.h>

#include <array>
#include <cstdint>

namespace moeway {

struct StatusBytes {
  uint32_t code;
  std::array<char, 508> message;  // Cut off where it is longer; ends with a zero byte when it leaves.

  static StatusBytes from(const Status& status);
  bool ok() const { return code == MOEWAY_OK; }
  // Never OK: a code that is none, or OK itself, counts as INTERNAL.
  Status failure() const;
};

}  // namespace moeway
