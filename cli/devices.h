// GPUs, RDMA devices and the libraries that drive them. Nothing is linked for it: files of the kernel are read, and
// libraries are looked for at run time.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace moeway::cli {

struct Gpu {
  std::string name;
  int64_t memory_bytes = 0;
};

struct RdmaDevice {
  std::string name, driver;        // Driver of the kernel: mlx5_core, efa and so on.
  std::vector<std::string> ports;  // "1: ACTIVE, InfiniBand, 400 Gb/sec (4X NDR)"
};

struct Library {
  std::string name;  // libfabric.so.1
  bool found = false;
  std::string version;  // "" if it does not say.
  std::string error;    // Why it was not found.
};

struct Devices {
  std::string gpu_error;  // Why there is no GPU to be seen; "" if there are some.
  std::string gpu_driver;
  std::vector<Gpu> gpus;
  int64_t gpu_peer_pairs = 0;  // Ordered pairs of GPUs of which one can reach the other's memory.
  std::string nvidia_smi;      // Path, "" if there is none.
  std::vector<RdmaDevice> rdma;
  Library libfabric, nvshmem, ibverbs;
};

// Loads vendor libraries, whose code may do anything: call it in a process of its own (see child_text.h).
Devices look_at_devices();

// The same, in a process of its own: what it says if looking failed. Fork rules apply: no second thread yet.
Devices look_at_devices_apart();

// The version of NVIDIA's driver, "580.159.04", from the kernel's files or else from NVML; "" where there is none.
std::string nvidia_driver_version();

void to_json(nlohmann::json& json, const Devices& devices);
void from_json(const nlohmann::json& json, Devices& devices);

}  // namespace moeway::cli
