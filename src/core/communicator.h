// The ranks of a job: how they meet, and the transport between them.
#pragma once

#include <moeway/status.h>

#include <chrono>
#include <memory>

#include "base/collective.h"
#include "transport/heap.h"

namespace moeway::core {

// Shared by the communicator's handle and the objects made from it, so that these outlive its close().
class Communicator {
 public:
  // Collective.
  static Result<std::shared_ptr<Communicator>> create(std::unique_ptr<Collective> collective,
                                                      std::chrono::milliseconds timeout);

  int rank() const { return collective_->rank(); }
  int size() const { return collective_->size(); }
  Collective& collective() { return *collective_; }
  transport::Transport& transport() { return *transport_; }
  // The limit of a collective step that starts now.
  Deadline deadline() const { return Deadline::after(timeout_); }

 private:
  Communicator(std::unique_ptr<Collective> collective, std::unique_ptr<transport::Transport> transport,
               std::chrono::milliseconds timeout)
      : collective_(std::move(collective)), transport_(std::move(transport)), timeout_(timeout) {}

  std::unique_ptr<Collective> collective_;
  std::unique_ptr<transport::Transport> transport_;
  std::chrono::milliseconds timeout_;
};

}  // namespace moeway::core
