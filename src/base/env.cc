#include "base/env.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/foreign_text.h"
#include "base/log.h"

namespace moeway {
namespace {

// A whole number of at least `least`, or what *value was.
template <class Int>
void read_number(const char* name, Int least, Int* value) {
  const char* text = std::getenv(name);
  if (text == nullptr) return;
  const std::string_view view(text);
  Int number = 0;
  const auto [end, failure] = std::from_chars(view.data(), view.data() + view.size(), number);
  if (failure == std::errc() && end == view.data() + view.size() && number >= least) {
    *value = number;
  } else {
    log_line("{} is '{}', expected a whole number of at least {}; using {}", name, quotable(view), least, *value);
  }
}

Env read_env() {
  Env env;
  read_number("MOEWAY_TIMEOUT_MS", int64_t{1}, &env.timeout_ms);
  read_number("MOEWAY_PERTURB", uint64_t{0}, &env.perturb);
  if (const char* text = std::getenv("MOEWAY_LOG")) {
    const std::string_view view(text);
    if (view == "info") {
      env.log = Env::Log::kInfo;
    } else if (view == "debug") {
      env.log = Env::Log::kDebug;
    } else if (view != "error") {
      log_line("MOEWAY_LOG is '{}', expected error, info or debug; using error", quotable(view));
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
