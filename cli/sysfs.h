// Small files in which the kernel tells about itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moeway::cli {

// The first line, without its end; "" if the file cannot be read.
std::string read_line_of(const std::string& path);
// The number that the file starts with.
std::optional<int64_t> read_number_of(const std::string& path);
// "MemTotal:   123 kB" in a file of such lines: the number, times 1024.
std::optional<int64_t> read_kib_field(const std::string& path, const std::string& field);
// "inactive_file 123" in a file of such lines: the number.
std::optional<int64_t> read_field(const std::string& path, const std::string& field);
// Names in a directory, sorted; none if there is no such directory.
std::vector<std::string> entries_of(const std::string& path);

}  // namespace moeway::cli
