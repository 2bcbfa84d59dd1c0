#include "cli/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <moeway/moeway.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/devices.h"
#include "cli/json_output.h"
#include "cli/machine.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/transport_check.h"

namespace moeway::cli {
namespace {

std::string library_text(const Library& library) {
  if (!library.found) return fmt::format("{} cannot be loaded ({})", library.name, library.error);
  return library.name + (library.version.empty() ? "" : ", version " + library.version);
}

std::string machine_text(const Machine& machine) {
  std::string text = fmt::format("This machine: {}, {}\n", machine.host_name, machine.kernel);
  text +=
      fmt::format("  cores        {} usable of {}{}: {}\n", machine.cores_usable, machine.cores_online,
                  machine.cores_limit > 0 ? fmt::format(", limited to the time of {:.1f}", machine.cores_limit) : "",
                  machine.processor);
  text += fmt::format("  memory       {} available of {}{}\n",
                      bytes_text(static_cast<double>(machine.memory_available_bytes)),
                      bytes_text(static_cast<double>(machine.memory_bytes)),
                      machine.memory_limit_bytes > 0
                          ? fmt::format(", limited to {}", bytes_text(static_cast<double>(machine.memory_limit_bytes)))
                          : "");
  for (const NumaNode& node : machine.numa_nodes)
    text += fmt::format("  NUMA node {:<2} processors {}, {}\n", node.id, node.cpus,
                        bytes_text(static_cast<double>(node.memory_bytes)));
  return text;
}

std::string devices_text(const Devices& devices) {
  std::string text;
  if (devices.gpus.empty())
    text += fmt::format("  GPUs         none: {}; nvidia-smi {}\n", devices.gpu_error,
                        devices.nvidia_smi.empty() ? "is not in PATH either" : "is " + devices.nvidia_smi);
  for (const Gpu& gpu : devices.gpus)
    text += fmt::format("  GPU          {}, {}, {}\n", gpu.name, bytes_text(static_cast<double>(gpu.memory_bytes)),
                        devices.gpu_driver);
  if (devices.gpus.size() > 1)
    text += fmt::format("  peer access  {} of {} ordered pairs of GPUs\n", devices.gpu_peer_pairs,
                        devices.gpus.size() * (devices.gpus.size() - 1));
  if (devices.rdma.empty()) text += "  RDMA         none: /sys/class/infiniband has no device\n";
  for (const RdmaDevice& device : devices.rdma)
    text += fmt::format("  RDMA         {} ({}): {}\n", device.name, device.driver, fmt::join(device.ports, "; "));
  text += fmt::format("  libfabric    {}\n", library_text(devices.libfabric));
  text += fmt::format("  NVSHMEM      {}\n", library_text(devices.nvshmem));
  text += fmt::format("  verbs        {}\n", library_text(devices.ibverbs));
  return text;
}

std::string transports_text(const std::vector<TransportVerdict>& verdicts) {
  std::string text = "\nTransports\n";
  for (const TransportVerdict& verdict : verdicts) {
    text += fmt::format("  {:<15} {:<4} {}\n", verdict.name, verdict.works ? "yes" : "no", verdict.why);
    if (!verdict.change.empty()) text += fmt::format("  {:<15} {:<4} to change that: {}\n", "", "", verdict.change);
  }
  return text;
}

int run_doctor(const JsonOutput& json_output, const std::vector<std::string>& command_line) {
  if (const Status writable = json_output.check(); !writable.ok()) {
    fmt::print(stderr, "moeway doctor: {}\n", writable.message());
    return 2;
  }
  const Machine machine = look_at_machine();
  const Devices devices = look_at_devices_apart();
  int signal = 0;
  const std::vector<TransportVerdict> verdicts = judge_transports(devices, signal);
  if (signal != 0) end_by(signal);
  bool any = false;
  nlohmann::json transports = nlohmann::json::array();
  for (const TransportVerdict& verdict : verdicts) {
    any = any || verdict.works;
    transports.push_back({{"name", verdict.name},
                          {"works", verdict.works},
                          {"in_this_build", verdict.in_this_build},
                          {"why", verdict.why},
                          {"change", verdict.change}});
  }
  if (json_output.text_wanted()) {
    fmt::print("moeway {}\n{}{}{}", moeway_version(), machine_text(machine), devices_text(devices),
               transports_text(verdicts));
  }
  const Status written = json_output.write({{"schema", "moeway.doctor/1"},
                                            {"version", moeway_version()},
                                            {"command", command_line},
                                            {"ok", any},
                                            {"machine", machine},
                                            {"devices", devices},
                                            {"transports", transports}});
  if (!written.ok()) fmt::print(stderr, "moeway doctor: {}\n", written.message());
  return any && written.ok() ? 0 : 1;
}

}  // namespace

std::function<int()> add_doctor(CLI::App& app, const std::vector<std::string>& command_line) {
  CLI::App* command = app.add_subcommand("doctor", "What this machine has, and which transports work on it");
  auto json_output = std::make_shared<JsonOutput>();
  add_json_option(*command, *json_output);
  return [json_output, &command_line] { return run_doctor(*json_output, command_line); };
}

}  // namespace moeway::cli
