#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "cli/device/place.h"

namespace moeway::cli {
namespace {

class HostRecording final : public Recording {
 public:
  explicit HostRecording(std::function<Status()> calls) : calls_(std::move(calls)) {}
  Result<double> replay_us() override {
    if (Status status = calls_(); !status.ok()) return status;
    const auto start = std::chrono::steady_clock::now();
    if (Status status = calls_(); !status.ok()) return status;
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  std::function<Status()> calls_;
};

class HostPlace final : public Place {
 public:
  moeway_device_type device_type() const override { return MOEWAY_CPU; }
  int device_index() const override { return 0; }
  void* stream() const override { return nullptr; }

  Result<std::byte*> allocate(int64_t bytes) override {
    constexpr int64_t kAlignment = 64;
    const int64_t whole = (std::max(bytes, int64_t{1}) + kAlignment - 1) / kAlignment * kAlignment;
    auto* memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<size_t>(whole)));
    if (memory == nullptr) return Status(MOEWAY_OUT_OF_MEMORY, std::to_string(bytes) + " bytes cannot be had");
    blocks_.emplace_back(memory);
    return memory;
  }
  Status copy_in(std::byte* to, const std::byte* from, int64_t bytes) override { return copy_within(to, from, bytes); }
  Status copy_out(std::byte* to, const std::byte* from, int64_t bytes) override { return copy_within(to, from, bytes); }
  Status fill(std::byte* to, int value, int64_t bytes) override {
    std::fill_n(to, bytes, static_cast<std::byte>(value));
    return Status();
  }
  Status copy_within(std::byte* to, const std::byte* from, int64_t bytes) override {
    std::copy_n(from, bytes, to);
    return Status();
  }
  Status synchronize() override { return Status(); }
  Result<std::unique_ptr<Recording>> record(std::function<Status()> calls) override {
    return std::unique_ptr<Recording>(std::make_unique<HostRecording>(std::move(calls)));
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

}  // namespace

std::unique_ptr<Place> make_host_place() { return std::make_unique<HostPlace>(); }

}  // namespace moeway::cli
