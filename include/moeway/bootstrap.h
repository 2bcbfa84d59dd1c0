// How the ranks of a job find each other. Each function's contract: the C function of the same name in c_api.h.
#pragma once

#include <moeway/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace moeway {

inline constexpr std::chrono::milliseconds kDefaultTimeout{30000};

// Ranks as threads of one process share one of these. Thread-safe. Throws nothing; a size below 1 makes every bootstrap
// of it fail.
class ThreadGroup {
 public:
  explicit ThreadGroup(int num_ranks) : status_(create(num_ranks)) {}
  const Status& status() const { return status_; }
  moeway_thread_group* get() const { return group_.get(); }

 private:
  struct Destroy {
    void operator()(moeway_thread_group* group) const { moeway_thread_group_destroy(group); }
  };
  Status create(int num_ranks) {
    moeway_thread_group* group = nullptr;
    Status status = Status::from_c(moeway_thread_group_create(num_ranks, &group));
    group_.reset(group);
    return status;
  }
  std::unique_ptr<moeway_thread_group, Destroy> group_;
  Status status_;
};

// A rank that has met the others: rank, size, and an all-gather that the library uses at creation. Move-only.
class Bootstrap {
 public:
  static Result<Bootstrap> threads(const ThreadGroup& group, int rank) {
    if (!group.status().ok()) return group.status();
    return make([&](moeway_bootstrap** out) { return moeway_bootstrap_create_threads(group.get(), rank, out); });
  }
  static Result<Bootstrap> local(const std::string& directory, int rank, int num_ranks,
                                 std::chrono::milliseconds timeout = kDefaultTimeout) {
    return make([&](moeway_bootstrap** out) {
      return moeway_bootstrap_create_local(directory.c_str(), rank, num_ranks, timeout.count(), out);
    });
  }
  static Result<Bootstrap> tcp(const std::string& address, int port, const std::string& secret, int rank, int num_ranks,
                               std::chrono::milliseconds timeout = kDefaultTimeout) {
    return make([&](moeway_bootstrap** out) {
      return moeway_bootstrap_create_tcp(address.c_str(), port, secret.c_str(), rank, num_ranks, timeout.count(), out);
    });
  }
  static Result<Bootstrap> env(std::chrono::milliseconds timeout = kDefaultTimeout) {
    return make([&](moeway_bootstrap** out) { return moeway_bootstrap_create_env(timeout.count(), out); });
  }
  // `all_gather(in, bytes, out)` returns whether it succeeded. It must not throw.
  using AllGather = std::function<bool(const void* in, size_t bytes, void* out)>;
  static Result<Bootstrap> callback(int rank, int num_ranks, AllGather all_gather) {
    auto owned = std::make_shared<AllGather>(std::move(all_gather));
    const moeway_all_gather_fn call = [](void* context, const void* in, size_t bytes, void* out) {
      return (*static_cast<AllGather*>(context))(in, bytes, out) ? 0 : 1;
    };
    Result<Bootstrap> made = make([&](moeway_bootstrap** out) {
      return moeway_bootstrap_create_callback(rank, num_ranks, call, owned.get(), out);
    });
    if (made.ok()) made.value().callback_ = std::move(owned);
    return made;
  }

  int rank() const { return moeway_bootstrap_rank(handle_.get()); }
  int size() const { return moeway_bootstrap_size(handle_.get()); }

 private:
  friend class Communicator;
  struct Destroy {
    void operator()(moeway_bootstrap* bootstrap) const { moeway_bootstrap_destroy(bootstrap); }
  };
  template <class F>
  static Result<Bootstrap> make(F create) {
    moeway_bootstrap* handle = nullptr;
    if (Status status = Status::from_c(create(&handle)); !status.ok()) return status;
    Bootstrap bootstrap;
    bootstrap.handle_.reset(handle);
    return Result<Bootstrap>(std::move(bootstrap));
  }
  std::unique_ptr<moeway_bootstrap, Destroy> handle_;
  std::shared_ptr<AllGather> callback_;  // The C side keeps a pointer to it.
};

}  // namespace moeway
