// A private directory in which local ranks meet.
#pragma once

#include <moeway/status.h>

#include <string>

namespace moeway::cli {

// Removed, with what is in it, by remove() or when destroyed.
class MeetingDirectory {
 public:
  // Below TMPDIR, or /tmp where TMPDIR is not set or too long for the name of a socket; mode 0700.
  static Result<MeetingDirectory> create();
  MeetingDirectory(MeetingDirectory&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  MeetingDirectory& operator=(MeetingDirectory&&) = delete;
  ~MeetingDirectory() { remove(); }

  const std::string& path() const { return path_; }
  void remove();

 private:
  explicit MeetingDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;  // Empty once removed.
};

}  // namespace moeway::cli
