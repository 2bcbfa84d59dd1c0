// `moeway plan`: what a shape needs, without running anything.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/cli11_fwd.h"

namespace moeway::cli {

// As add_doctor. Exit code 2 if the library would refuse the shape.
std::function<int()> add_plan(CLI::App& app, const std::vector<std::string>& command_line);

}  // namespace moeway::cli
