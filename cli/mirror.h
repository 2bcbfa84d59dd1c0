// The tensors of a checked run where the rank is: on a device each of Buffers has a copy there, guard included; on the host
// they are used as they are, and nothing here does anything.
#pragma once

#include <moeway/all_to_all.h>

#include <cstddef>
#include <initializer_list>
#include <map>

#include "cli/buffers.h"
#include "cli/device/place.h"

namespace moeway::cli {

class Mirror {
 public:
  explicit Mirror(Place& place) : place_(place), on_host_(place.device_type() == MOEWAY_CPU) {}

  // Takes the memory and copies all of `buffers` to it. Before any kernel runs.
  Status open(const Buffers& buffers);

  // The same tensors, as the library is to be given them.
  Tensor there(const Tensor& tensor) const;
  DispatchInput there(const DispatchInput& input) const;
  DispatchOutput there(const DispatchOutput& output) const;

  // From the host to the device, and back with the guard. Done when they return.
  Status upload(std::initializer_list<const GuardedBytes*> buffers);
  Status download(std::initializer_list<const GuardedBytes*> buffers);
  // Poison, in the order of the stream.
  Status poison(std::initializer_list<const GuardedBytes*> buffers);

 private:
  std::byte* device_of(const GuardedBytes& bytes) const { return copies_.at(bytes.data()); }

  Place& place_;
  bool on_host_;
  std::map<const void*, std::byte*> copies_;  // By where the host's lies.
};

}  // namespace moeway::cli
