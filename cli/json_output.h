// --json [FILE], which every command has.
#pragma once

#include <moeway/status.h>

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/cli11_fwd.h"

namespace moeway::cli {

struct JsonOutput {
  bool wanted = false;
  std::string file;  // "" or "-": standard output, and no table.

  bool to_stdout() const { return wanted && (file.empty() || file == "-"); }
  bool text_wanted() const { return !to_stdout(); }
  // What would keep write() from succeeding, as far as can be told before the work is done.
  Status check() const;
  // Does nothing if no JSON is wanted. A file appears whole or not at all.
  Status write(const nlohmann::json& json) const;
};

void add_json_option(CLI::App& app, JsonOutput& output);

}  // namespace moeway::cli
