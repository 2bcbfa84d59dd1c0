// The ranks of a job: how they meet, and the transport between them.
#pragma once

#include <moeway/c_api.h>
#include <moeway/status.h>

#include <chrono>
#include <memory>

#include "base/collective.h"
#include "transport/heap.h"

namespace moeway::core {

// Shared by the communicator's handle and the objects made from it: these outlive its close().
class Communicator {
 public:
  // Collective. `options`: or what is wrong with this rank's arguments, which all ranks then hear.
  static Result<std::shared_ptr<Communicator>> create(std::unique_ptr<Collective> collective,
                                                      const Result<moeway_communicator_options>& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Not after leave().
  Collective& collective() { return *collective_; }
  // No further collective call comes from this rank: whoever waits for one hears of it at once.
  void leave() { collective_.reset(); }
  transport::Transport& transport() { return *transport_; }
  moeway_device_type device_type() const { return options_.device_type; }
  bool on_device() const { return options_.device_type == MOEWAY_CUDA; }
  int device_index() const { return options_.device_index; }
  // The limit of a collective step that starts now.
  Deadline deadline() const { return Deadline::after(std::chrono::milliseconds(options_.timeout_ms)); }

 private:
  Communicator(std::unique_ptr<Collective> collective, std::unique_ptr<transport::Transport> transport,
               const moeway_communicator_options& options)
      : rank_(collective->rank()),
        size_(collective->size()),
        collective_(std::move(collective)),
        transport_(std::move(transport)),
        options_(options) {}

  const int rank_;
  const int size_;
  std::unique_ptr<Collective> collective_;
  std::unique_ptr<transport::Transport> transport_;
  moeway_communicator_options options_;
};

}  // namespace moeway::core
