// Errors are values: a code and a message that names the argument, its value and what was expected.
#pragma once

#include <moeway/c_api.h>

#include <optional>
#include <string>
#include <utility>

namespace moeway {

using StatusCode = ::moeway_status;

// Success, or a code with a message. Immutable, freely copied; safe to read from several threads.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  // The outcome of a C call of this thread, with its message.
  static Status from_c(StatusCode code) { return code == MOEWAY_OK ? Status() : Status(code, moeway_last_error()); }

  bool ok() const { return code_ == MOEWAY_OK; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // "OK", or "INVALID_ARGUMENT: topk_idx ...".
  std::string to_string() const { return ok() ? "OK" : std::string(moeway_status_name(code_)) + ": " + message_; }

 private:
  StatusCode code_ = MOEWAY_OK;
  std::string message_;
};

// A value, or the reason why there is none. value() requires ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT(google-explicit-constructor): `return value;`
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor): `return status;`

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace moeway
