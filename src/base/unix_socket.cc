#include "base/unix_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/format.h"

namespace moeway {
namespace {

// False if the path is too long.
bool make_address(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof(address->sun_path)) return false;
  std::memcpy(address->sun_path, path.data(), path.size());
  return true;
}

Descriptor make_socket() { return Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

}  // namespace

Result<ClosedDirectory> ClosedDirectory::open(const std::string& path) {
  ClosedDirectory directory;
  directory.path_ = path;
  directory.fd_ = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.fd_.valid()) {
    return invalid_argument("directory is '{}': {}; expected an existing directory", path,
                            std::generic_category().message(errno));
  }
  struct stat info {};
  if (fstat(directory.fd(), &info) != 0) return system_error("fstat", errno);
  if (info.st_uid != geteuid()) {
    return invalid_argument("directory '{}' belongs to user {}, expected this process's user {}", path, info.st_uid,
                            geteuid());
  }
  const unsigned mode = info.st_mode & 07777u;
  if ((mode & 0077u) != 0 || (mode & 0700u) != 0700u) {
    return invalid_argument("directory '{}' has mode {:04o}, expected 0700 (closed to other users)", path, mode);
  }
  return directory;
}

Result<std::string> ClosedDirectory::socket_path(const std::string& name) const {
  struct stat info {};
  const std::string by_descriptor = fmt::format("/proc/self/fd/{}", fd());
  if (stat(by_descriptor.c_str(), &info) == 0) return by_descriptor + "/" + name;
  std::string plain = path_ + "/" + name;
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (plain.size() <= kLongest) return plain;
  return error(MOEWAY_UNAVAILABLE,
               "directory '{}' gives a socket path of {} bytes, expected at most {} where /proc is not mounted", path_,
               plain.size(), kLongest);
}

Result<Descriptor> listen_unix(const ClosedDirectory& directory, const std::string& name) {
  const Result<std::string> path = directory.socket_path(name);
  if (!path.ok()) return path.status();
  sockaddr_un address{};
  if (!make_address(path.value(), &address)) return invalid_argument("socket path '{}' is too long", path.value());
  Descriptor listener = make_socket();
  if (!listener.valid()) return system_error("socket", errno);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int failure = errno;
    return error(MOEWAY_UNAVAILABLE, "cannot make a socket in directory '{}': {}", directory.path(),
                 std::generic_category().message(failure));
  }
  if (listen(listener.get(), SOMAXCONN) != 0) {
    const int failure = errno;
    unlinkat(directory.fd(), name.c_str(), 0);
    return system_error("listen", failure);
  }
  return listener;
}

int connect_unix(const std::string& socket_path, Descriptor* socket) {
  sockaddr_un address{};
  if (!make_address(socket_path, &address)) return ENAMETOOLONG;
  Descriptor candidate = make_socket();
  if (!candidate.valid()) return errno;
  while (connect(candidate.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno != EINTR) return errno;
  }
  *socket = std::move(candidate);
  return 0;
}

bool peer_is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace moeway
