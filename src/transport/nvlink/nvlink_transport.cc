#include "transport/nvlink_transport.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "transport/host/peer_processes.h"
#include "transport/host/whereabouts.h"
#include "transport/nvlink/device_heap.h"
#include "transport/nvlink/driver.h"

namespace moeway::transport {
namespace {

class NvlinkTransport final : public Transport {
 public:
  NvlinkTransport(const Driver& driver, int device_index, int num_sharers, PeerProcesses peers)
      : driver_(driver), device_index_(device_index), num_sharers_(num_sharers), peers_(std::move(peers)) {}
  const char* name() const override { return "nvlink"; }
  int num_sharers() const override { return num_sharers_; }
  bool peer_lost(int rank) const override { return peers_.lost(rank); }

  Result<std::unique_ptr<SymmetricHeap>> allocate(size_t bytes, Collective& collective, Deadline deadline) override {
    const Result<DeviceContext> context = DeviceContext::enter(driver_, device_index_);
    if (Status s = collective.agree(context.status(), deadline); !s.ok()) return s;
    CUdevice device = 0;
    Status status = driver_.check(driver_.device_get(&device, device_index_), "cuDeviceGet");
    auto heap = std::make_unique<DeviceHeap>(driver_, device, collective.rank(), collective.size(), bytes);
    Result<Descriptor> mine = status.ok() ? heap->create() : Result<Descriptor>(status);
    status = mine.ok() ? heap->reserve() : mine.status();
    if (Status s = collective.agree(status, deadline); !s.ok()) return s;
    const Result<std::vector<Descriptor>> all = peers_.exchange().all_gather(mine.value(), collective, deadline);
    if (!all.ok()) return all.status();
    if (Status s = map_all(*heap, all.value(), collective, deadline); !s.ok()) return s;
    if (Status s = collective.agree(heap->clear(), deadline); !s.ok()) return s;
    return std::unique_ptr<SymmetricHeap>(std::move(heap));
  }

 private:
  // Maps every rank's segment; a rank tries all of them, so that the message can name every pair that does not reach
  // each other.
  Status map_all(DeviceHeap& heap, const std::vector<Descriptor>& descriptors, Collective& collective,
                 Deadline deadline) const {
    const auto size = static_cast<size_t>(collective.size());
    std::vector<uint8_t> mine(size), all(size * size);
    Status first;
    for (size_t r = 0; r < size; ++r) {
      const Status status = heap.map(static_cast<int>(r), descriptors[r]);
      mine[r] = status.ok() ? 1 : 0;
      if (first.ok()) first = status;
    }
    if (Status s = collective.all_gather(mine.data(), size, all.data(), deadline); !s.ok()) return s;
    std::string pairs;
    for (size_t pair = 0; pair < all.size(); ++pair) {
      if (all[pair] == 0) pairs += fmt::format("{}{} -> {}", pairs.empty() ? "" : ", ", pair / size, pair % size);
    }
    if (pairs.empty()) return {};
    return error(MOEWAY_UNAVAILABLE, "these ranks' devices cannot map the other's memory: {} (on this rank: {})", pairs,
                 first.ok() ? "all well" : first.message());
  }

  const Driver& driver_;
  const int device_index_;
  const int num_sharers_;
  PeerProcesses peers_;
};

// Which device it is, however a process numbers it.
using Uuid = std::array<char, 16>;

// This rank's driver and device, if they will do.
Result<const Driver*> check_device(int device_index, Uuid* uuid) {
  const Result<const Driver*> driver = Driver::get();
  if (!driver.ok()) return driver.status();
  const Result<DeviceContext> context = DeviceContext::enter(*driver.value(), device_index);
  if (!context.ok()) return context.status();
  CUdevice device = 0;
  int shares = 0;
  if (Status s = driver.value()->check(driver.value()->device_get(&device, device_index), "cuDeviceGet"); !s.ok())
    return s;
  driver.value()->device_get_attribute(&shares, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                       device);
  if (shares == 0)
    return error(MOEWAY_UNAVAILABLE, "CUDA device {} cannot share memory as file descriptors", device_index);
  CUuuid id;
  if (Status s = driver.value()->check(driver.value()->device_get_uuid(&id, device), "cuDeviceGetUuid"); !s.ok())
    return s;
  std::copy(std::begin(id.bytes), std::end(id.bytes), uuid->begin());
  return driver;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_nvlink_transport(int device_index, Collective& collective, Deadline deadline) {
  Uuid uuid{};
  const Result<const Driver*> driver = check_device(device_index, &uuid);
  if (Status s = collective.agree(driver.status(), deadline); !s.ok()) return s;
  const Result<std::vector<Whereabouts>> ranks = collective.all_gather_value(whereabouts(), deadline);
  if (!ranks.ok()) return ranks.status();
  if (!all_on_one_machine(ranks.value())) {
    return error(MOEWAY_UNAVAILABLE, "the nvlink transport reaches ranks on one machine only: {}",
                 who_is_where(ranks.value()));
  }
  Result<PeerProcesses> peers = PeerProcesses::meet(ranks.value(), collective, deadline);
  if (!peers.ok()) return peers.status();
  const Result<std::vector<Uuid>> devices = collective.all_gather_value(uuid, deadline);
  if (!devices.ok()) return devices.status();
  const auto num_sharers = static_cast<int>(std::count(devices.value().begin(), devices.value().end(), uuid));
  auto transport =
      std::make_unique<NvlinkTransport>(*driver.value(), device_index, num_sharers, std::move(peers).value());
  // Whether every pair can be mapped shows only when it is done.
  const auto trial = transport->allocate(1, collective, deadline);
  if (!trial.ok()) return trial.status();
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace moeway::transport
