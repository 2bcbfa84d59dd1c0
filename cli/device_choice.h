// --device and --devices: where ranks run.
#pragma once

#include <moeway/status.h>

#include <string>
#include <vector>

#include "cli/cli11_fwd.h"

namespace moeway::cli {

struct DeviceOptions {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  std::vector<int> devices;  // Empty: all there are.
};

void add_device_options(CLI::App& app, DeviceOptions& options);

struct DeviceChoice {
  std::vector<int> devices;  // Rank r is on devices[r % size]; empty: ranks are on the host.
  std::string note;          // Why --device auto came to the host.

  bool on_host() const { return devices.empty(); }
};

// Looks at the machine in a process of its own, if that can matter: fork rules apply. A message names option, value and what
// was expected.
Result<DeviceChoice> choose_devices(const DeviceOptions& options);

// Ranks of several processes on one device would take turns on it, and wait for each other meanwhile. "" if none do.
std::string shared_by_processes(const DeviceChoice& choice, int num_ranks);

// For ranks that share a device and a process: kernels must not be loaded while others run and wait. Before any rank starts.
void load_kernels_early();

}  // namespace moeway::cli
