// What this machine has for ranks on the host: processors and memory, as the kernel tells.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace moeway::cli {

struct NumaNode {
  int id = 0;
  std::string cpus;  // As the kernel lists them: "0-15,32-47".
  int64_t memory_bytes = 0;
};

struct Machine {
  std::string host_name, kernel, processor;
  int64_t cores_online = 0;
  int64_t cores_usable = 0;  // That this process may run on.
  double cores_limit = 0;    // Of the control group, in cores' worth of time; 0 if none.
  int64_t memory_bytes = 0;
  int64_t memory_available_bytes = 0;      // Without swapping, within the control group's limit.
  int64_t memory_limit_bytes = 0;          // Of the control group; 0 if none.
  int64_t locked_memory_limit_bytes = -1;  // -1: unlimited.
  std::vector<NumaNode> numa_nodes;
};

Machine look_at_machine();

void to_json(nlohmann::json& json, const Machine& machine);

}  // namespace moeway::cli
