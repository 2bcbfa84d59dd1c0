#include "cli/json_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace moeway::cli {
namespace {

bool write_whole(std::FILE* file, const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

}  // namespace

Status JsonOutput::check() const {
  if (!wanted || to_stdout()) return Status();
  const std::filesystem::path path(file);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return Status(MOEWAY_INVALID_ARGUMENT, fmt::format("--json: {}: a directory, expected a file", file));
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    return Status(MOEWAY_INVALID_ARGUMENT,
                  fmt::format("--json: {}: its folder cannot be written to: {}", file, std::strerror(errno)));
  return Status();
}

Status JsonOutput::write(const nlohmann::json& json) const {
  if (!wanted) return Status();
  const std::string text = json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const auto failed = [this](const char* what) {
    return Status(MOEWAY_INTERNAL, fmt::format("--json: {}: {}: {}", file.empty() ? "standard output" : file, what,
                                               std::strerror(errno)));
  };
  if (to_stdout()) return write_whole(stdout, text) ? Status() : failed("write");
  // A pipe or a device cannot be replaced by a new file: those are written to as they are.
  std::error_code ignored;
  const bool replace = !std::filesystem::exists(file, ignored) || std::filesystem::is_regular_file(file, ignored);
  const std::string path = replace ? fmt::format("{}.{}.part", file, getpid()) : file;
  std::FILE* out = std::fopen(path.c_str(), "we");
  if (out == nullptr) return failed("open");
  const bool whole = write_whole(out, text);
  if (std::fclose(out) != 0 || !whole || (replace && std::rename(path.c_str(), file.c_str()) != 0)) {
    Status status = failed("write");
    if (replace) std::remove(path.c_str());
    return status;
  }
  return Status();
}

void add_json_option(CLI::App& app, JsonOutput& output) {
  app.add_option_function<std::vector<std::string>>(
         "--json",
         [&output](const std::vector<std::string>& given) {
           output.wanted = true;
           if (!given.empty()) output.file = given.front();
         },
         "Write the results as JSON: to FILE, or instead of the table\nto standard output")
      ->type_name("[FILE]")
      ->expected(0, 1);
}

}  // namespace moeway::cli
