// Which process an object belongs to. A fork has a copy of every object of its parent's, with the same sockets and the
// same shared memory behind it, but it is no rank of the job: it may let its copies go, and nothing else.
#pragma once

#include <cstdint>

namespace moeway {

// How many forks lie between the program's start and this process. Costs a load: asked for in every call. (A process
// that was made by the bare system call rather than by fork() counts as its parent.)
uint32_t num_forks();

class OwnerProcess {
 public:
  // Whether this is the process in which the object was made.
  bool is_this() const { return num_forks() == made_at_; }

 private:
  uint32_t made_at_ = num_forks();
};

}  // namespace moeway
