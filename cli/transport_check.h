// Which transports work on this machine, found out by using them.
#pragma once

#include <string>
#include <vector>

#include "cli/devices.h"

namespace moeway::cli {

struct TransportVerdict {
  std::string name;
  bool in_this_build = false;
  bool works = false;
  std::string why;     // What was tried and seen, or why it cannot be used.
  std::string change;  // What would make it usable; "" if it is.
};

// Runs a small job over each transport of this build. Sets `signal` if one asked the command to end meanwhile.
std::vector<TransportVerdict> judge_transports(const Devices& devices, int& signal);

}  // namespace moeway::cli
