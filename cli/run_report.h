// What `moeway run` prints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/run_summary.h"

namespace moeway::cli {

// The table, without the verdict: what was asked for, what moved, the load, the times.
std::string run_table(const RunSetup& setup, const RunSummary& summary, bool unicode);
// One line if all was right, else what went wrong first.
std::string run_verdict(const RunSetup& setup, const RunSummary& summary);
// The same for machines; docs/command-line.md describes it. `command`: the words it was asked with.
nlohmann::json run_json(const RunSetup& setup, const RunSummary& summary, const std::vector<std::string>& command);

}  // namespace moeway::cli
