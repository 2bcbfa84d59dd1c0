// `moeway doctor`: what this machine has, which transports work here, and why the others do not.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/cli11_fwd.h"

namespace moeway::cli {

// Adds the command. `command_line` is what the JSON output repeats. The function returned runs it and gives the exit
// code: 0 if at least one transport works.
std::function<int()> add_doctor(CLI::App& app, const std::vector<std::string>& command_line);

}  // namespace moeway::cli
