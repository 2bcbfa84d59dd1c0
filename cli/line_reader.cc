#include "cli/line_reader.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

namespace moeway::cli {

Result<LineReader> LineReader::open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return Status(MOEWAY_INVALID_ARGUMENT, fmt::format("{}: {}", path, std::strerror(errno)));
  LineReader reader(path, file);
  struct stat about {};
  if (fstat(fileno(file), &about) == 0 && S_ISDIR(about.st_mode))
    return Status(MOEWAY_INVALID_ARGUMENT, fmt::format("{}: a directory, expected a file", path));
  return reader;
}

bool LineReader::take_line_part(std::string& line) {
  const char* from = chunk_.data() + begin_;
  const void* newline = std::memchr(from, '\n', end_ - begin_);
  const size_t length =
      newline == nullptr ? end_ - begin_ : static_cast<size_t>(static_cast<const char*>(newline) - from);
  line.append(from, length);
  begin_ += length + (newline == nullptr ? 0 : 1);
  return newline != nullptr;
}

Result<bool> LineReader::next(std::string& line) {
  line.clear();
  ++line_number_;
  while (true) {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = std::fread(chunk_.data(), 1, chunk_.size(), file_.get());
      if (end_ == 0 && std::ferror(file_.get()) != 0)
        return Status(MOEWAY_INVALID_ARGUMENT, fmt::format("{}:{}: {}", path_, line_number_, std::strerror(errno)));
      if (end_ == 0) return !line.empty();
    }
    if (take_line_part(line)) return true;
    if (line.size() > kMaxLineBytes)
      return Status(MOEWAY_INVALID_ARGUMENT, fmt::format("{}:{}: the line has more than {} bytes, expected one record",
                                                         path_, line_number_, kMaxLineBytes));
  }
}

}  // namespace moeway::cli
