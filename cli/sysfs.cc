#include "cli/sysfs.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace moeway::cli {

std::string read_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int64_t> read_number_of(const std::string& path) {
  const std::string line = read_line_of(path);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

std::optional<int64_t> read_kib_field(const std::string& path, const std::string& field) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(field + ":");
    if (at == std::string::npos) continue;
    std::istringstream rest(line.substr(at + field.size() + 1));
    int64_t kib = 0;
    if (rest >> kib) return kib * 1024;
  }
  return std::nullopt;
}

std::optional<int64_t> read_field(const std::string& path, const std::string& field) {
  std::ifstream file(path);
  std::string name;
  int64_t number = 0;
  while (file >> name >> number)
    if (name == field) return number;
  return std::nullopt;
}

std::vector<std::string> entries_of(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace moeway::cli
