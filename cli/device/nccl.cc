#include "cli/device/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace moeway::cli {
namespace {

struct Id {
  std::byte bytes[128];
};
constexpr int kSuccess = 0, kChar = 0;  // ncclSuccess, ncclChar.

}  // namespace

// By the types that NCCL's manual gives; a communicator and a stream are pointers to things that it does not show.
struct Nccl::Functions {
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(Id*) = nullptr;
  int (*comm_init_rank)(void**, int, Id, int) = nullptr;
  int (*comm_destroy)(void*) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, size_t, int, int, void*, void*) = nullptr;
  int (*recv)(void*, size_t, int, int, void*, void*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
};

Result<std::unique_ptr<Nccl>> Nccl::load(const std::string& library) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return Status(MOEWAY_UNAVAILABLE, fmt::format("NCCL cannot be loaded: {}", dlerror()));
  auto functions = std::make_unique<Functions>();
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    using Function = std::remove_reference_t<decltype(function)>;
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(functions->get_version, "ncclGetVersion");
  find(functions->get_unique_id, "ncclGetUniqueId");
  find(functions->comm_init_rank, "ncclCommInitRank");
  find(functions->comm_destroy, "ncclCommDestroy");
  find(functions->group_start, "ncclGroupStart");
  find(functions->group_end, "ncclGroupEnd");
  find(functions->send, "ncclSend");
  find(functions->recv, "ncclRecv");
  find(functions->get_error_string, "ncclGetErrorString");
  // The library stays loaded: its threads may outlive a communicator.
  if (!missing.empty()) return Status(MOEWAY_UNAVAILABLE, fmt::format("{} has no {}", library, missing));
  return std::unique_ptr<Nccl>(new Nccl(std::move(functions)));
}

Nccl::Nccl(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nccl::~Nccl() {
  if (communicator_ != nullptr) functions_->comm_destroy(communicator_);
}

Status Nccl::check(int result, const char* call) const {
  if (result == kSuccess) return Status();
  return Status(MOEWAY_INTERNAL, fmt::format("{}: {}", call, functions_->get_error_string(result)));
}

std::string Nccl::version() const {
  int version = 0;
  if (functions_->get_version(&version) != kSuccess) return "unknown";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<Nccl::UniqueId> Nccl::unique_id() const {
  Id id{};
  if (Status status = check(functions_->get_unique_id(&id), "ncclGetUniqueId"); !status.ok()) return status;
  return std::to_array(id.bytes);
}

Status Nccl::init(int num_ranks, const UniqueId& unique_id, int rank) {
  Id id{};
  std::copy(unique_id.begin(), unique_id.end(), id.bytes);
  num_ranks_ = num_ranks;
  return check(functions_->comm_init_rank(&communicator_, num_ranks, id, rank), "ncclCommInitRank");
}

Status Nccl::all_to_all(const std::byte* send, const Shares& sent, std::byte* recv, const Shares& received,
                        void* stream) const {
  if (Status status = check(functions_->group_start(), "ncclGroupStart"); !status.ok()) return status;
  Status status;
  for (int peer = 0; peer < num_ranks_ && status.ok(); ++peer) {
    const auto [to, sent_bytes] = sent(peer);
    const auto [from, received_bytes] = received(peer);
    status = check(functions_->send(send + to, static_cast<size_t>(sent_bytes), kChar, peer, communicator_, stream),
                   "ncclSend");
    if (status.ok())
      status =
          check(functions_->recv(recv + from, static_cast<size_t>(received_bytes), kChar, peer, communicator_, stream),
                "ncclRecv");
  }
  const Status ended = check(functions_->group_end(), "ncclGroupEnd");  // Also when a call failed.
  return status.ok() ? ended : status;
}

}  // namespace moeway::cli
