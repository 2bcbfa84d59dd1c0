#include "fuzz/target.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace moeway::fuzz {

std::vector<Target>& targets() {
  static std::vector<Target> targets;
  return targets;
}

void require(bool holds, const char* rule, std::string_view seen) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: broken: %s: '%s'\n", rule, std::string(seen).c_str());
  std::abort();
}

void require_readable(const Status& status) {
  constexpr size_t kLongest = 2048;  // A path and a peer's own message fit.
  const std::string& message = status.message();
  require(message.size() <= kLongest, "a message is short", std::string_view(message).substr(0, kLongest));
  const auto steers = [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; };
  require(std::none_of(message.begin(), message.end(), steers), "a message has no control characters", message);
  require(status.ok() || !message.empty(), "a failure says what is wrong");
}

}  // namespace moeway::fuzz
