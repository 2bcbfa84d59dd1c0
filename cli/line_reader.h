// Reads a text file line by line, in bounded memory.
#pragma once

#include <moeway/status.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace moeway::cli {

class LineReader {
 public:
  // A record of 64 Ki tokens with 8 routes each has some 8 MB.
  static constexpr size_t kMaxLineBytes = size_t{64} << 20;

  static Result<LineReader> open(const std::string& path);

  // Sets `line` to the next line, without its end. False at the end of the file.
  Result<bool> next(std::string& line);
  // Of the line that next() gave last, from 1.
  int64_t line_number() const { return line_number_; }
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  LineReader(std::string path, std::FILE* file) : path_(std::move(path)), file_(file), chunk_(size_t{64} << 10) {}
  // Takes over what is left in the chunk up to a line end; true if there was one.
  bool take_line_part(std::string& line);

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> chunk_;
  size_t begin_ = 0, end_ = 0;  // What of the chunk has not been given out.
  int64_t line_number_ = 0;
};

}  // namespace moeway::cli
