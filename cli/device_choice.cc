#include "cli/device_choice.h"

#include <fmt/format.h>
#include <moeway/communicator.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "cli/devices.h"
#include "cli/option_text.h"

namespace moeway::cli {
namespace {

using Kind = DeviceOptions::Kind;

const Names<Kind> kKinds = {{"auto", Kind::kAuto}, {"cpu", Kind::kCpu}, {"cuda", Kind::kCuda}};
constexpr int kMaxDevice = 1023;
constexpr const char* kNotBuilt = "this moeway was built without CUDA (-DMOEWAY_CUDA=ON)";

}  // namespace

void add_device_options(CLI::App& app, DeviceOptions& options) {
  add_choice(app, "--device", options.kind, kKinds, "Where ranks are [auto: cuda, if build and machine\nhave it]");
  add_numbers(app, "--devices", options.devices, 0, kMaxDevice,
              "CUDA devices that ranks are dealt to in turn, 0,1,... [all]")
      ->type_name("LIST");
}

Result<DeviceChoice> choose_devices(const DeviceOptions& options) {
  const bool forced = options.kind == Kind::kCuda || !options.devices.empty();
  DeviceChoice choice;
  if (options.kind == Kind::kCpu) {
    if (options.devices.empty()) return choice;
    return Status(MOEWAY_INVALID_ARGUMENT, "--devices: not with --device cpu");
  }
  const char* option = options.kind == Kind::kCuda ? "--device cuda" : "--devices";
  if (!has_cuda()) {
    if (forced) return Status(MOEWAY_UNAVAILABLE, fmt::format("{}: {}", option, kNotBuilt));
    choice.note = kNotBuilt;
    return choice;
  }
  const Devices devices = look_at_devices_apart();
  const int count = static_cast<int>(devices.gpus.size());
  if (count == 0) {
    if (forced) return Status(MOEWAY_UNAVAILABLE, fmt::format("{}: no GPU: {}", option, devices.gpu_error));
    choice.note = "no GPU: " + devices.gpu_error;
    return choice;
  }
  for (const int device : options.devices)
    if (device >= count)
      return Status(MOEWAY_INVALID_ARGUMENT,
                    fmt::format("--devices: {}, expected numbers from 0 to {}: this machine has {} GPUs", device,
                                count - 1, count));
  choice.devices = options.devices;
  for (int device = 0; device < count && options.devices.empty(); ++device) choice.devices.push_back(device);
  return choice;
}

std::string shared_by_processes(const DeviceChoice& choice, int num_ranks) {
  if (choice.on_host() || num_ranks <= static_cast<int>(choice.devices.size())) return "";
  return fmt::format("{} ranks on {} CUDA device{}, expected at most one rank on each, or ranks as threads", num_ranks,
                     choice.devices.size(), choice.devices.size() == 1 ? "" : "s");
}

void load_kernels_early() { setenv("CUDA_MODULE_LOADING", "EAGER", /*replace=*/0); }

}  // namespace moeway::cli
