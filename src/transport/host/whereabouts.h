// Where a rank runs: in which process, on which machine. Plain data, for an all-gather.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace moeway::transport {

struct Whereabouts {
  std::array<uint8_t, 16> process;  // Differs between any two processes, also a fork and its parent.
  int64_t pid;
  uint64_t pid_namespace;     // 0 if unknown. Process ids mean the same in the same one.
  std::array<char, 40> boot;  // Of this boot of this machine; empty if unknown.
  std::array<char, 64> host;  // The machine's name, for messages.
};

Whereabouts whereabouts();

bool all_in_one_process(const std::vector<Whereabouts>& ranks);
bool all_on_one_machine(const std::vector<Whereabouts>& ranks);
// "ranks 0-3 on a, ranks 4-7 on b".
std::string who_is_where(const std::vector<Whereabouts>& ranks);

}  // namespace moeway::transport
