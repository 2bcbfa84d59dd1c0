#include "base/env.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace moeway {
namespace {

Env read_env() {
  Env env;
  if (const char* text = std::getenv("MOEWAY_TIMEOUT_MS")) {
    const std::string_view view(text);
    int64_t value = 0;
    const auto [end, failure] = std::from_chars(view.data(), view.data() + view.size(), value);
    if (failure == std::errc() && end == view.data() + view.size() && value >= 1) {
      env.timeout_ms = value;
    } else {
      log_line("MOEWAY_TIMEOUT_MS is '{}', expected a whole number of milliseconds >= 1; using {}", view,
               env.timeout_ms);
    }
  }
  if (const char* text = std::getenv("MOEWAY_LOG")) {
    const std::string_view view(text);
    if (view == "info") {
      env.log = Env::Log::kInfo;
    } else if (view == "debug") {
      env.log = Env::Log::kDebug;
    } else if (view != "error") {
      log_line("MOEWAY_LOG is '{}', expected error, info or debug; using error", view);
    }
  }
  return env;
}

}  // namespace

const Env& env() {
  static const Env env = read_env();
  return env;
}

}  // namespace moeway
