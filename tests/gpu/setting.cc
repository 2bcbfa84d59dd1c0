#include "gpu/setting.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace moeway::gpu {
namespace {

// Before anything else of this program: what CUDA reads when it starts.
const bool kPrepared = [] {
  // Kernels are loaded with the program: loading one at its first launch would wait for other ranks' kernels, which wait for
  // that launch.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  // Streams of ranks that share a device must not share a queue: one would wait for the other.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  return true;
}();

std::vector<int> current_order;
bool current_masked = false;

int count_devices() {
  if (!ranks_are_processes()) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();
    return count;
  }
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", ignored)) {
    const std::string name = entry.path().filename().string();
    count += name.size() > 6 && name.rfind("nvidia", 0) == 0 && std::isdigit(static_cast<unsigned char>(name[6])) != 0;
  }
  return count;
}

// Where there are no devices every test of the program is skipped, by name.
class NeedsDevices : public testing::Environment {
  void SetUp() override {
    if (const std::string what = missing(); !what.empty()) GTEST_SKIP() << what;
  }
};
[[maybe_unused]] const testing::Environment* const kEnvironment = testing::AddGlobalTestEnvironment(new NeedsDevices);

}  // namespace

bool ranks_are_processes() {
  const char* as = std::getenv("MOEWAY_GPU_RANKS_AS");
  return as != nullptr && std::strcmp(as, "processes") == 0;
}

int num_devices() {
  static const int count = count_devices();
  return count;
}

int device_of(int rank) {
  return current_order.empty() ? rank % num_devices() : current_order.at(static_cast<size_t>(rank));
}

DeviceOrder::DeviceOrder(std::vector<int> order, bool masked) {
  current_order = std::move(order);
  current_masked = masked;
}
DeviceOrder::~DeviceOrder() {
  current_order.clear();
  current_masked = false;
}
bool devices_are_masked() { return current_masked; }

std::string missing() { return num_devices() >= 1 ? "" : "needs 1 CUDA devices, this machine has 0"; }

bool are_there(const std::vector<int>& devices) {
  return std::all_of(devices.begin(), devices.end(), [](int device) { return device < num_devices(); });
}

}  // namespace moeway::gpu
