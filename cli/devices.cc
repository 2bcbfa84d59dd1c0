#include "cli/devices.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "cli/child_text.h"
#include "cli/sysfs.h"

namespace moeway::cli {
namespace {

constexpr std::chrono::seconds kDeviceLimit{30};

// A function of a shared object, null if it has none of that name.
template <class Function>
Function* symbol(void* handle, const char* name) {
  return reinterpret_cast<Function*>(dlsym(handle, name));
}

std::string program_in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    std::string candidate = std::string(rest.substr(0, colon)) + "/" + program;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
  }
  return "";
}

// The CUDA driver's functions, by the types that its manual gives (CUresult, CUdevice and so on are plain integers).
void look_at_gpus(Devices& devices) {
  devices.nvidia_smi = program_in_path("nvidia-smi");
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr) {
    devices.gpu_error = "no CUDA driver (libcuda.so.1 cannot be loaded)";
    return;
  }
  auto* init = symbol<int(unsigned)>(driver, "cuInit");
  auto* driver_version = symbol<int(int*)>(driver, "cuDriverGetVersion");
  auto* device_count = symbol<int(int*)>(driver, "cuDeviceGetCount");
  auto* device_name = symbol<int(char*, int, int)>(driver, "cuDeviceGetName");
  auto* device_memory = symbol<int(size_t*, int)>(driver, "cuDeviceTotalMem_v2");
  auto* can_access_peer = symbol<int(int*, int, int)>(driver, "cuDeviceCanAccessPeer");
  if (!init || !driver_version || !device_count || !device_name || !device_memory || !can_access_peer) {
    devices.gpu_error = "libcuda.so.1 lacks functions of the CUDA driver";
    return;
  }
  if (const int error = init(0); error != 0) {
    devices.gpu_error = fmt::format("the CUDA driver does not start (cuInit gives error {})", error);
    return;
  }
  int version = 0, count = 0;
  driver_version(&version);
  devices.gpu_driver = fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  device_count(&count);
  if (count == 0) devices.gpu_error = "the CUDA driver sees no GPU";
  for (int gpu = 0; gpu < count; ++gpu) {
    char name[256] = "";
    size_t bytes = 0;
    device_name(name, sizeof(name) - 1, gpu);
    device_memory(&bytes, gpu);
    devices.gpus.push_back({name, static_cast<int64_t>(bytes)});
    for (int peer = 0; peer < count; ++peer) {
      int can = 0;
      if (peer != gpu && can_access_peer(&can, gpu, peer) == 0) devices.gpu_peer_pairs += can;
    }
  }
}

void look_at_rdma(Devices& devices) {
  const std::string root = "/sys/class/infiniband/";
  for (const std::string& name : entries_of(root)) {
    RdmaDevice device;
    device.name = name;
    std::error_code error;
    const auto driver = std::filesystem::read_symlink(root + name + "/device/driver", error);
    device.driver = error ? "unknown" : driver.filename().string();
    for (const std::string& port : entries_of(root + name + "/ports")) {
      const std::string at = root + name + "/ports/" + port + "/";
      std::string state = read_line_of(at + "state");  // "4: ACTIVE"
      if (const size_t colon = state.find(": "); colon != std::string::npos) state = state.substr(colon + 2);
      device.ports.push_back(
          fmt::format("{}: {}, {}, {}", port, state, read_line_of(at + "link_layer"), read_line_of(at + "rate")));
    }
    devices.rdma.push_back(std::move(device));
  }
}

Library look_for(const char* name) {
  Library library;
  library.name = name;
  void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  library.found = handle != nullptr;
  if (!library.found) library.error = dlerror();
  if (handle == nullptr) return library;
  if (auto* fi_version = symbol<uint32_t()>(handle, "fi_version"))
    library.version = fmt::format("{}.{}", fi_version() >> 16, fi_version() & 0xffffu);
  return library;
}

}  // namespace

Devices look_at_devices() {
  Devices devices;
  look_at_gpus(devices);
  look_at_rdma(devices);
  devices.libfabric = look_for("libfabric.so.1");
  devices.nvshmem = look_for("libnvshmem_host.so.3");
  devices.ibverbs = look_for("libibverbs.so.1");
  return devices;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, name, memory_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RdmaDevice, name, driver, ports)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Library, name, found, version, error)

void to_json(nlohmann::json& to, const Devices& devices) {
  to = {{"gpu_error", devices.gpu_error},           {"gpu_driver", devices.gpu_driver}, {"gpus", devices.gpus},
        {"gpu_peer_pairs", devices.gpu_peer_pairs}, {"nvidia_smi", devices.nvidia_smi}, {"rdma", devices.rdma},
        {"libfabric", devices.libfabric},           {"nvshmem", devices.nvshmem},       {"ibverbs", devices.ibverbs}};
}

void from_json(const nlohmann::json& from, Devices& devices) {
  from.at("gpu_error").get_to(devices.gpu_error);
  from.at("gpu_driver").get_to(devices.gpu_driver);
  from.at("gpus").get_to(devices.gpus);
  from.at("gpu_peer_pairs").get_to(devices.gpu_peer_pairs);
  from.at("nvidia_smi").get_to(devices.nvidia_smi);
  from.at("rdma").get_to(devices.rdma);
  from.at("libfabric").get_to(devices.libfabric);
  from.at("nvshmem").get_to(devices.nvshmem);
  from.at("ibverbs").get_to(devices.ibverbs);
}

std::string nvidia_driver_version() {
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Thu ...": the first word that begins with a digit.
  const std::string line = read_line_of("/proc/driver/nvidia/version");
  for (size_t at = 1; at < line.size(); ++at)
    if (line[at - 1] == ' ' && line[at] >= '0' && line[at] <= '9') return line.substr(at, line.find(' ', at) - at);
  void* nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (nvml == nullptr) return "";
  auto* init = symbol<int()>(nvml, "nvmlInit_v2");
  auto* version = symbol<int(char*, unsigned)>(nvml, "nvmlSystemGetDriverVersion");
  char text[80] = "";
  if (init == nullptr || version == nullptr || init() != 0 || version(text, sizeof text) != 0) return "";
  return text;
}

Devices look_at_devices_apart() {
  const Result<std::string> text =
      text_from_child([] { return nlohmann::json(look_at_devices()).dump(); }, kDeviceLimit);
  if (text.ok()) {
    const auto parsed = nlohmann::json::parse(text.value(), nullptr, false);
    if (parsed.is_object()) return parsed.get<Devices>();
  }
  Devices devices;
  devices.gpu_error = "looking for devices failed: " + text.status().message();
  devices.libfabric = {"libfabric.so.1", false, "", "not looked for"};
  devices.nvshmem = {"libnvshmem_host.so.3", false, "", "not looked for"};
  devices.ibverbs = {"libibverbs.so.1", false, "", "not looked for"};
  return devices;
}

}  // namespace moeway::cli
