// The ranks of a job: how they meet, and the transport between them.
#pragma once

#include <moeway/c_api.h>
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
                                                      const moeway_communicator_options& options);

  int rank() const { return collective_->rank(); }
  int size() const { return collective_->size(); }
  Collective& collective() { return *collective_; }
  transport::Transport& transport() { return *transport_; }
  moeway_device_type device_type() const { return options_.device_type; }
  bool on_device() const { return options_.device_type == MOEWAY_CUDA; }
  int device_index() const { return options_.device_index; }
  // The limit of a collective step that starts now.
  Deadline deadline() const { return Deadline::after(std::chrono::milliseconds(options_.timeout_ms)); }

 private:
  Communicator(std::unique_ptr<Collective> collective, std::unique_ptr<transport::Transport> transport,
               const moeway_communicator_options& options)
      : collective_(std::move(collective)), transport_(std::move(transport)), options_(options) {}

  std::unique_ptr<Collective> collective_;
  std::unique_ptr<transport::Transport> transport_;
  moeway_communicator_options options_;
};

}  // namespace moeway::core
