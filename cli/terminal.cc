#include "cli/terminal.h"

#include <fmt/format.h>
#include <langinfo.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace moeway::cli {
namespace {

constexpr const char* kAcross[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
constexpr const char* kUp[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

}  // namespace

bool use_unicode() { return std::string_view(nl_langinfo(CODESET)) == "UTF-8"; }

std::string bar(double fraction, int width, bool unicode) {
  const int steps = unicode ? 8 : 1;
  const int filled = static_cast<int>(std::lround(std::clamp(fraction, 0.0, 1.0) * width * steps));
  std::string text;
  for (int i = 0; i < filled / steps; ++i) text += unicode ? kAcross[8] : "#";
  text += kAcross[filled % steps];
  const int used = (filled + steps - 1) / steps;
  return text + std::string(static_cast<size_t>(width - used), ' ');
}

std::string columns(const std::vector<double>& fractions, size_t max_columns, bool unicode) {
  const size_t num_columns = std::min(fractions.size(), max_columns);
  std::string text;
  for (size_t column = 0; column < num_columns; ++column) {
    const auto first = fractions.begin() + static_cast<std::ptrdiff_t>(column * fractions.size() / num_columns);
    const auto last = fractions.begin() + static_cast<std::ptrdiff_t>((column + 1) * fractions.size() / num_columns);
    const double fraction = std::min(*std::max_element(first, last), 1.0);
    if (fraction <= 0) {
      text += '.';
    } else if (unicode) {
      text += kUp[static_cast<size_t>(std::ceil(fraction * 8)) - 1];
    } else {
      text += static_cast<char>('0' + static_cast<int>(std::ceil(fraction * 9)));
    }
  }
  return text;
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  const int64_t first = number < 0 ? 1 : 0;
  for (int64_t at = std::ssize(text) - 3; at > first; at -= 3) text.insert(static_cast<size_t>(at), ",");
  return text;
}

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 100 ? 0 : 1, kUnits[unit]);
}

std::string duration_text(double microseconds) {
  if (microseconds < 1000) return fmt::format("{:.1f} us", microseconds);
  if (microseconds < 1e6) return fmt::format("{:.2f} ms", microseconds / 1000);
  return fmt::format("{:.2f} s", microseconds / 1e6);
}

std::string counted(int64_t number, const std::string& thing) {
  return fmt::format("{} {}{}", with_commas(number), thing, number == 1 ? "" : "s");
}

std::string ranges_text(const std::vector<int64_t>& sorted) {
  std::string text;
  for (size_t i = 0; i < sorted.size();) {
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", sorted[i]);
    if (last > i) text += fmt::format("-{}", sorted[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace moeway::cli
