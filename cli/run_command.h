// `moeway run`: a whole job. Ranks dispatch tokens, experts answer, combine adds up, and every value is checked.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/cli11_fwd.h"

namespace moeway::cli {

// As add_doctor. Exit code 0 if all was right, 1 if not, 2 if the library would refuse what was asked for.
std::function<int()> add_run(CLI::App& app, const std::vector<std::string>& command_line);

}  // namespace moeway::cli
