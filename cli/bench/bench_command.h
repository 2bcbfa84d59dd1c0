// `moeway bench`: how long dispatch and combine take, with every value checked before and after.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/cli11_fwd.h"

namespace moeway::cli {

// As add_doctor. Exit code 1 if a value was wrong or a rank did not finish.
std::function<int()> add_bench(CLI::App& app, const std::vector<std::string>& command_line);

}  // namespace moeway::cli
