// The machine that GPU tests find, and how their ranks are dealt to it.
#pragma once

#include <string>
#include <vector>

namespace moeway::gpu {

// Whether this program has its ranks as processes (MOEWAY_GPU_RANKS_AS=processes), not as threads. Such a program must not
// touch CUDA itself before it forks them.
bool ranks_are_processes();

// CUDA devices of this machine. Without touching CUDA where ranks are processes.
int num_devices();

// The device of a rank: in turn, or what a DeviceOrder says.
int device_of(int rank);

// While it lives, rank r is on device order[r]. With `masked` (ranks as processes) each sees no other, and as number 0.
class DeviceOrder {
 public:
  explicit DeviceOrder(std::vector<int> order, bool masked = false);
  ~DeviceOrder();
  DeviceOrder(const DeviceOrder&) = delete;
  DeviceOrder& operator=(const DeviceOrder&) = delete;
};
bool devices_are_masked();

// Empty if the tests can run, ranks sharing a device if need be; else what they lack.
std::string missing();

// Whether this machine has all of them. A test of several devices leaves out what it cannot do, and says so (kOneDevice).
bool are_there(const std::vector<int>& devices);
inline constexpr const char* kOneDevice = "with a second CUDA device this test does more";

}  // namespace moeway::gpu
