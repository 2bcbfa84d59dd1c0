// The ranks of a job and the memory through which they reach each other. Contracts: c_api.h.
#pragma once

#include <moeway/bootstrap.h>
#include <moeway/status.h>

#include <memory>
#include <utility>

namespace moeway {

// Whether this build can have ranks on CUDA devices; says nothing of the machine.
inline bool has_cuda() { return moeway_has_cuda() != 0; }

struct CommunicatorOptions : moeway_communicator_options {
  CommunicatorOptions() : moeway_communicator_options{} { moeway_communicator_options_init(this); }
};

// Move-only; closes itself when destroyed. Use by one thread at a time.
class Communicator {
 public:
  // Collective. Fails on all ranks if it fails on one that the others can hear of.
  static Result<Communicator> create(Bootstrap bootstrap, const CommunicatorOptions& options = {}) {
    moeway_communicator* handle = nullptr;
    Status status = Status::from_c(moeway_communicator_create(bootstrap.handle_.release(), &options, &handle));
    if (!status.ok()) return status;
    Communicator communicator;
    communicator.callback_ = std::move(bootstrap.callback_);
    communicator.handle_.reset(handle);
    return Result<Communicator>(std::move(communicator));
  }

  int rank() const { return moeway_communicator_rank(handle_.get()); }
  int size() const { return moeway_communicator_size(handle_.get()); }
  const char* transport() const { return moeway_communicator_transport(handle_.get()); }
  Status barrier() { return Status::from_c(moeway_communicator_barrier(handle_.get())); }
  Status close() { return Status::from_c(moeway_communicator_close(handle_.get())); }
  moeway_communicator* get() const { return handle_.get(); }

 private:
  struct Destroy {
    void operator()(moeway_communicator* communicator) const { moeway_communicator_destroy(communicator); }
  };
  std::shared_ptr<Bootstrap::AllGather> callback_;  // Outlives the handle.
  std::unique_ptr<moeway_communicator, Destroy> handle_;
};

}  // namespace moeway
