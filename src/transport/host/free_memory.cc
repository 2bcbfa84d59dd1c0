#include "transport/host/free_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>
#include <vector>

#include "base/checked.h"
#include "base/format.h"

namespace moeway::transport {
namespace {

// Version 1 writes "no limit" as a huge number.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<int64_t> to_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end == text.data() || value < 0) return std::nullopt;
  return value;
}

// The number that a file holds; nothing if it does not exist or holds none ("max").
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return to_number(word);
}

// The number behind `key` in a file of lines "key number ...".
std::optional<int64_t> number_behind(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word, value, rest;
  while (file >> word >> value) {
    if (word == key) return to_number(value);
    std::getline(file, rest);
  }
  return std::nullopt;
}

// The files of one version of control groups.
struct Hierarchy {
  const char* mount;
  const char* limit;
  const char* used;
  const char* inactive;
  const char* active;
};
constexpr Hierarchy kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"};
constexpr Hierarchy kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file", "total_active_file"};

// Looks at the group and all those above it: each has its own limit. In a container the path may be the host's, of
// which only the upper part's end is mounted; then the mount point itself is this process's group.
void read_group(const Hierarchy& version, const std::string& root, std::string path, FreeMemory* free) {
  for (;;) {
    const std::string directory = root + version.mount + (path == "/" ? "" : path);
    const std::optional<int64_t> limit = number_in(directory + "/" + version.limit);
    const std::optional<int64_t> used = number_in(directory + "/" + version.used);
    if (limit && used && *limit < kNoLimit) {
      const std::string stat_file = directory + "/memory.stat";
      const int64_t cache =
          number_behind(stat_file, version.inactive).value_or(0) + number_behind(stat_file, version.active).value_or(0);
      const int64_t left = std::max<int64_t>(*limit - *used + std::min(cache, *used), 0);
      struct stat info {};
      if (left < free->group_bytes && stat(directory.c_str(), &info) == 0) {
        free->group_bytes = left;
        free->group = info.st_ino;
      }
    }
    const size_t slash = path.rfind('/');
    if (path.empty() || path == "/" || slash == std::string::npos) return;
    path.resize(slash);
  }
}

struct Request {
  uint64_t bytes;
  FreeMemory free;
};

}  // namespace

FreeMemory read_free_memory(const std::string& root) {
  FreeMemory free;
  if (const auto kib = number_behind(root + "/proc/meminfo", "MemAvailable:")) free.machine_bytes = *kib * 1024;
  // Lines of "number:controllers:path"; version 2 has no controllers in its line.
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") read_group(kVersion2, root, path, &free);
    if (controllers.find(",memory,") != std::string::npos) read_group(kVersion1, root, path, &free);
  }
  return free;
}

Status check_segments_fit(size_t bytes, Collective& collective, Deadline deadline) {
  const Result<std::vector<Request>> all = collective.all_gather_value(Request{bytes, read_free_memory()}, deadline);
  if (!all.ok()) return all.status();
  const std::vector<Request>& ranks = all.value();
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].bytes != ranks[0].bytes) {
      return error(MOEWAY_MISMATCH, "rank {} asks for segments of {} bytes, rank 0 of {}", r, ranks[r].bytes,
                   ranks[0].bytes);
    }
  }
  const CheckedSize each(static_cast<int64_t>(bytes));
  const auto num_ranks = static_cast<int64_t>(ranks.size());
  if (bytes < 1 || !(each * num_ranks).ok()) {
    return invalid_argument("segments of {} bytes on {} ranks, expected 1 or more, and a sum within 64 bits", bytes,
                            num_ranks);
  }
  for (size_t r = 0; r < ranks.size(); ++r) {
    const FreeMemory& free = ranks[r].free;
    if (each.value() * num_ranks > free.machine_bytes) {
      return error(MOEWAY_OUT_OF_MEMORY,
                   "{} ranks need {} bytes together ({} each), rank {} sees {} bytes free on the machine", num_ranks,
                   each.value() * num_ranks, bytes, r, free.machine_bytes);
    }
    const auto sharing =
        std::count_if(ranks.begin(), ranks.end(), [&](const Request& other) { return other.free.group == free.group; });
    if (free.group != 0 && each.value() * sharing > free.group_bytes) {
      return error(
          MOEWAY_OUT_OF_MEMORY,
          "{} ranks need {} bytes together ({} each), rank {} sees {} bytes free below the limit of its memory "
          "control group",
          sharing, each.value() * sharing, bytes, r, free.group_bytes);
    }
  }
  return {};
}

}  // namespace moeway::transport
