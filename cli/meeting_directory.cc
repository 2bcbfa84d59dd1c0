#include "cli/meeting_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace moeway::cli {
namespace {

// A socket's name has at most 107 bytes; this leaves 40 to those who make sockets in the directory.
constexpr size_t kMaxParentBytes = 48;

}  // namespace

Result<MeetingDirectory> MeetingDirectory::create() {
  const char* parent = std::getenv("TMPDIR");
  if (parent == nullptr || *parent == '\0' || std::strlen(parent) > kMaxParentBytes) parent = "/tmp";
  std::string path = std::string(parent) + "/moeway-run-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return Status(MOEWAY_INTERNAL,
                  fmt::format("no directory for the ranks to meet in: {}: {} (TMPDIR chooses the place)", path,
                              std::strerror(errno)));
  return MeetingDirectory(std::move(path));
}

void MeetingDirectory::remove() {
  if (path_.empty()) return;
  std::error_code ignored;  // Nothing can be done about it, and nobody else uses the directory.
  std::filesystem::remove_all(path_, ignored);
  path_.clear();
}

}  // namespace moeway::cli
