// A fuzz target: what this library reads from outside, given any bytes. A target has a file <name>_target.cc and a corpus
// corpus/<name>. With clang each is a libFuzzer program of its own (libfuzzer_entry.cc, cmake/fuzz.cmake); with any
// compiler replay_test.cc runs all of them on what lies in the corpora.
#pragma once

#include <moeway/status.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace moeway::fuzz {

using Bytes = std::span<const uint8_t>;

struct Target {
  const char* name;
  // Must give the same result for the same bytes, leave nothing behind, and end by itself.
  void (*run)(Bytes input);
};

// All targets of this program.
std::vector<Target>& targets();

struct Registration {
  Registration(const char* name, void (*run)(Bytes)) { targets().push_back({name, run}); }
};

// Ends the program, which is how libFuzzer learns of a finding, unless `holds`. `seen`: what broke the rule.
void require(bool holds, const char* rule, std::string_view seen = {});
// A message must be short and of one line: bytes from outside that it quotes may neither fill a screen nor steer a terminal.
void require_readable(const Status& status);

}  // namespace moeway::fuzz
