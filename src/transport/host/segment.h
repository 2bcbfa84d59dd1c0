// One rank's segment as memory of the operating system's that has no name: it lives as long as a descriptor or a
// mapping of it does, in whatever process, and goes with the last, however that ends.
#pragma once

#include <moeway/status.h>

#include <cstddef>
#include <utility>

#include "base/deadline.h"
#include "base/descriptor.h"

namespace moeway::transport {

// Zero-filled, all its pages taken, and sealed: nobody can change its size any more, so no access to a mapping of it
// can fail. OUT_OF_MEMORY, with needed and free bytes, if the memory cannot be had.
Result<Descriptor> make_segment(size_t bytes, Deadline deadline);

class Mapping {
 public:
  // Readable, writable and shared. Refuses what is no sealed segment of `bytes`.
  static Result<Mapping> map(const Descriptor& segment, size_t bytes);

  Mapping(Mapping&& other) noexcept : base_(std::exchange(other.base_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&&) = delete;
  ~Mapping();
  std::byte* base() const { return base_; }

 private:
  Mapping(std::byte* base, size_t bytes) : base_(base), bytes_(bytes) {}
  std::byte* base_;
  size_t bytes_;
};

}  // namespace moeway::transport
