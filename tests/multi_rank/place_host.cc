// Ranks on the host: memory is memory, and a call that has returned is done.
#include <sys/mman.h>

#include <cstdlib>

#include "multi_rank/place.h"

namespace moeway::multi_rank::place {

bool on_devices() { return false; }
As rank_form(As as) { return as; }
void prepare() {}
void enter(int, int) {}
void leave() {}
CommunicatorOptions communicator_options() { return {}; }
void* stream() { return nullptr; }
Tensor here(Tensor tensor) { return tensor; }
std::byte* readable(const Tensor& view, Memory<std::byte>*) { return static_cast<std::byte*>(view.data); }
Status settle(const AllToAll&, Status status) { return status; }

// Of the very size, so that AddressSanitizer sees an access past it.
void* take(size_t bytes) {
  void* memory = std::malloc(bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
void give(void* memory, size_t) { std::free(memory); }

void* take_sparse(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
void give_sparse(void* memory, size_t bytes) { munmap(memory, bytes); }

}  // namespace moeway::multi_rank::place
