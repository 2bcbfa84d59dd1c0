#include "transport/host/segment.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/format.h"
#include "transport/host/free_memory.h"

namespace moeway::transport {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
// Taken in pieces: a signal that arrives makes the kernel undo the piece at hand, and with a profiler's timer a large
// one might never be finished.
constexpr size_t kPieceBytes = size_t{64} << 20;

Status cannot_have(size_t bytes, const char* call, int failure) {
  const FreeMemory free = read_free_memory();
  return error(MOEWAY_OUT_OF_MEMORY, "a segment of {} bytes is needed, {} bytes of memory are free ({})", bytes,
               std::min(free.machine_bytes, free.group_bytes), system_error(call, failure).message());
}

Descriptor make_memfd() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
#ifdef MFD_NOEXEC_SEAL
  // Some machines allow no other memfd; kernels before 6.3 do not know the flag.
  if (Descriptor segment(memfd_create("moeway", kFlags | MFD_NOEXEC_SEAL)); segment.valid() || errno != EINVAL)
    return segment;
#endif
  return Descriptor(memfd_create("moeway", kFlags));
}

}  // namespace

Result<Descriptor> make_segment(size_t bytes, Deadline deadline) {
  // Beyond this limit the kernel would kill the process rather than refuse.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur) {
    return error(MOEWAY_OUT_OF_MEMORY, "a segment of {} bytes is needed, the file size limit (ulimit -f) is {} bytes",
                 bytes, limit.rlim_cur);
  }
  Descriptor segment = make_memfd();
  if (!segment.valid()) return system_error("memfd_create", errno, MOEWAY_UNAVAILABLE);
  if (ftruncate(segment.get(), static_cast<off_t>(bytes)) != 0) return cannot_have(bytes, "ftruncate", errno);
  for (size_t taken = 0; taken < bytes;) {
    const size_t piece = std::min(bytes - taken, kPieceBytes);
    if (fallocate(segment.get(), 0, static_cast<off_t>(taken), static_cast<off_t>(piece)) == 0) {
      taken += piece;
    } else if (errno != EINTR) {
      return cannot_have(bytes, "fallocate", errno);
    }
    if (deadline.passed()) {
      return error(MOEWAY_DEADLINE_EXCEEDED, "{} of {} bytes of a segment were reserved in time", taken, bytes);
    }
  }
  if (fcntl(segment.get(), F_ADD_SEALS, kSeals) != 0) return system_error("fcntl(F_ADD_SEALS)", errno);
  return segment;
}

Result<Mapping> Mapping::map(const Descriptor& segment, size_t bytes) {
  struct stat info {};
  if (fstat(segment.get(), &info) != 0) return system_error("fstat", errno);
  const int seals = fcntl(segment.get(), F_GET_SEALS);
  if (info.st_size != static_cast<off_t>(bytes) || seals < 0 || (seals & kSeals) != kSeals) {
    return error(MOEWAY_INTERNAL, "a peer sent a segment of {} bytes with seals {}, expected {} bytes and seals {}",
                 info.st_size, seals, bytes, kSeals);
  }
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment.get(), 0);
  if (base == MAP_FAILED) return cannot_have(bytes, "mmap", errno);
  return Mapping(static_cast<std::byte*>(base), bytes);
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace moeway::transport
