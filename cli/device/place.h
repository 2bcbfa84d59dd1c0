// Where a rank's tensors lie and how its calls are timed: on the host, or on a CUDA device. The commands are written
// against this; which of the two it is decides one call.
#pragma once

#include <moeway/status.h>
#include <moeway/tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace moeway::cli {

// Calls that were put down once and are made again and again. On a device: a captured graph. Must not outlive its Place.
class Recording {
 public:
  virtual ~Recording() = default;
  // Makes all the calls twice, one time right after the other, and gives the time of the second, in microseconds: the
  // first brings ranks that did not start together into step.
  virtual Result<double> replay_us() = 0;
};

// Used by one thread at a time.
class Place {
 public:
  virtual ~Place() = default;
  virtual moeway_device_type device_type() const = 0;
  virtual int device_index() const = 0;
  // For moeway_all_to_all_set_stream.
  virtual void* stream() const = 0;

  // Memory of unspecified content, released with the Place. Release of a device's memory can wait for all its kernels:
  // ranks that share one destroy their Places when none of them has work under way.
  virtual Result<std::byte*> allocate(int64_t bytes) = 0;
  // To and from host memory: done when the call returns.
  virtual Status copy_in(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  virtual Status copy_out(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  // In the order of the stream; the call may return earlier.
  virtual Status fill(std::byte* to, int value, int64_t bytes) = 0;
  virtual Status copy_within(std::byte* to, const std::byte* from, int64_t bytes) = 0;
  // Waits for what was enqueued.
  virtual Status synchronize() = 0;
  // `calls` enqueues; it is kept, or called once, and must be good for as long as the recording lives.
  virtual Result<std::unique_ptr<Recording>> record(std::function<Status()> calls) = 0;

  // The tensor as this place's: `tensor` made for the host, with this place's device type and index.
  Tensor here(Tensor tensor) const {
    tensor.device_type = device_type();
    tensor.device_index = device_index();
    return tensor;
  }
};

std::unique_ptr<Place> make_host_place();

}  // namespace moeway::cli
