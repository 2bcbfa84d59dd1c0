#include "cli/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/sysfs.h"

namespace moeway::cli {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  return "unknown processor";
}

int64_t usable_cores() {
  // Machines with more than 1024 processors need a larger set than cpu_set_t.
  constexpr int kMaxProcessors = 16384;
  cpu_set_t* set = CPU_ALLOC(kMaxProcessors);
  const size_t bytes = CPU_ALLOC_SIZE(kMaxProcessors);
  CPU_ZERO_S(bytes, set);
  int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (sched_getaffinity(0, bytes, set) == 0) cores = CPU_COUNT_S(bytes, set);
  CPU_FREE(set);
  return cores;
}

// The control group of this process and those that hold it, innermost first: each may have a limit of its own.
std::vector<std::string> control_groups() {
  const std::string root = "/sys/fs/cgroup";
  std::vector<std::string> folders;
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::/")) continue;
    for (std::string path = line.substr(3); path.size() > 1; path.resize(path.rfind('/')))
      folders.push_back(root + path);
  }
  folders.push_back(root);
  return folders;
}

// "max 100000" or "200000 100000": microseconds of processor time in each period (control groups, version 2).
double cores_of(const std::string& line) {
  const size_t blank = line.find(' ');
  if (blank == std::string::npos) return 0;
  double quota = 0, period = 0;
  std::from_chars(line.data(), line.data() + blank, quota);
  std::from_chars(line.data() + blank + 1, line.data() + line.size(), period);
  return quota > 0 && period > 0 ? quota / period : 0;
}

double limit_of_cores() {
  double limit = 0;
  for (const std::string& group : control_groups())
    if (const double cores = cores_of(read_line_of(group + "/cpu.max")); cores > 0)
      limit = limit == 0 ? cores : std::min(limit, cores);
  if (limit > 0) return limit;
  const std::string version_1 = "/sys/fs/cgroup/cpu/cpu.cfs_";
  return cores_of(read_line_of(version_1 + "quota_us") + " " + read_line_of(version_1 + "period_us"));
}

// `used` counts files that were read and can be dropped again: `droppable` of it is no reason to refuse a job.
void take_memory_limit(Machine& machine, std::optional<int64_t> limit, std::optional<int64_t> used,
                       std::optional<int64_t> droppable) {
  // Version 1 says "no limit" with a number near 2^63.
  if (!limit || *limit <= 0 || *limit >= machine.memory_bytes) return;
  machine.memory_limit_bytes = machine.memory_limit_bytes == 0 ? *limit : std::min(machine.memory_limit_bytes, *limit);
  const int64_t room = std::max(*limit - used.value_or(0) + droppable.value_or(0), int64_t{0});
  machine.memory_available_bytes = std::min(machine.memory_available_bytes, room);
}

void look_at_memory(Machine& machine) {
  machine.memory_bytes = read_kib_field("/proc/meminfo", "MemTotal").value_or(0);
  machine.memory_available_bytes = read_kib_field("/proc/meminfo", "MemAvailable").value_or(0);
  for (const std::string& group : control_groups())
    take_memory_limit(machine, read_number_of(group + "/memory.max"), read_number_of(group + "/memory.current"),
                      read_field(group + "/memory.stat", "inactive_file"));
  const std::string version_1 = "/sys/fs/cgroup/memory/memory.";
  take_memory_limit(machine, read_number_of(version_1 + "limit_in_bytes"), read_number_of(version_1 + "usage_in_bytes"),
                    read_field(version_1 + "stat", "total_inactive_file"));
  rlimit locked{};
  if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur != RLIM_INFINITY)
    machine.locked_memory_limit_bytes = static_cast<int64_t>(locked.rlim_cur);
}

void look_at_numa(Machine& machine) {
  const std::string root = "/sys/devices/system/node/";
  for (const std::string& name : entries_of(root)) {
    NumaNode node;
    const char* end = name.data() + name.size();
    if (!name.starts_with("node") || std::from_chars(name.data() + 4, end, node.id).ptr != end) continue;
    node.cpus = read_line_of(root + name + "/cpulist");
    node.memory_bytes = read_kib_field(root + name + "/meminfo", "MemTotal").value_or(0);
    machine.numa_nodes.push_back(std::move(node));
  }
  std::sort(machine.numa_nodes.begin(), machine.numa_nodes.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
}

}  // namespace

Machine look_at_machine() {
  Machine machine;
  utsname names{};
  if (uname(&names) == 0) {
    machine.host_name = names.nodename;
    machine.kernel = std::string(names.sysname) + " " + names.release + " " + names.machine;
  }
  machine.processor = processor_name();
  machine.cores_online = sysconf(_SC_NPROCESSORS_ONLN);
  machine.cores_usable = usable_cores();
  machine.cores_limit = limit_of_cores();
  look_at_memory(machine);
  look_at_numa(machine);
  return machine;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NumaNode, id, cpus, memory_bytes)

void to_json(nlohmann::json& json, const Machine& machine) {
  json = {{"host_name", machine.host_name},
          {"kernel", machine.kernel},
          {"processor", machine.processor},
          {"cores_online", machine.cores_online},
          {"cores_usable", machine.cores_usable},
          {"cores_limit", machine.cores_limit},
          {"memory_bytes", machine.memory_bytes},
          {"memory_available_bytes", machine.memory_available_bytes},
          {"memory_limit_bytes", machine.memory_limit_bytes},
          {"locked_memory_limit_bytes", machine.locked_memory_limit_bytes},
          {"numa_nodes", machine.numa_nodes}};
}

}  // namespace moeway::cli
