// Unix-domain sockets in a directory that is closed to others.
#pragma once

#include <moeway/status.h>

#include <string>

#include "base/descriptor.h"

namespace moeway {

// A directory that belongs to this user and that nobody else can enter (mode 0700), held open.
class ClosedDirectory {
 public:
  // INVALID_ARGUMENT, with what is wrong, if it does not exist or others can enter it.
  static Result<ClosedDirectory> open(const std::string& path);

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  // A path of `name` in this directory that fits a socket address, however long the directory's own path is: through
  // /proc/self/fd, or the plain path where there is no /proc and it is short enough. UNAVAILABLE if neither can be had.
  Result<std::string> socket_path(const std::string& name) const;

 private:
  Descriptor fd_;
  std::string path_;
};

// A non-blocking listening socket at `directory`/`name`, which must not exist yet.
Result<Descriptor> listen_unix(const ClosedDirectory& directory, const std::string& name);
// Connects `*socket` (non-blocking) at once or not at all. 0, or the errno: ENOENT, ECONNREFUSED and EAGAIN may go
// away.
int connect_unix(const std::string& socket_path, Descriptor* socket);
// Whether the process at the other end of a Unix-domain socket is of this process's user.
bool peer_is_same_user(int fd);

}  // namespace moeway
