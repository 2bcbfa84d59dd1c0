// NCCL, loaded when it is first asked for: nothing of it is needed to build or to start the command.
#pragma once

#include <moeway/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace moeway::cli {

class Nccl {
 public:
  // As NCCL's manual defines it: made by one rank, given to all.
  using UniqueId = std::array<std::byte, 128>;

  // `library`: a file, or a name that the loader finds. MOEWAY_UNAVAILABLE, with the loader's words, if there is none.
  static Result<std::unique_ptr<Nccl>> load(const std::string& library);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  std::string version() const;  // "2.27.7"
  Result<UniqueId> unique_id() const;
  // Collective. On the calling thread's current device; two ranks cannot share one.
  Status init(int num_ranks, const UniqueId& id, int rank);

  // What goes to, or comes from, each rank.
  struct Share {
    int64_t offset = 0, bytes = 0;
  };
  using Shares = std::function<Share(int peer)>;
  // Collective; enqueues on `stream`.
  Status all_to_all(const std::byte* send, const Shares& sent, std::byte* recv, const Shares& received,
                    void* stream) const;

 private:
  struct Functions;
  explicit Nccl(std::unique_ptr<Functions> functions);
  Status check(int result, const char* call) const;

  std::unique_ptr<Functions> functions_;
  void* communicator_ = nullptr;
  int num_ranks_ = 0;
};

}  // namespace moeway::cli
