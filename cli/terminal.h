// Text for people: numbers, units and bars, with the characters that the terminal has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moeway::cli {

// Block characters where the locale is UTF-8, ASCII elsewhere; a file gets what a terminal would. Needs
// setlocale(LC_CTYPE, "") to have been called.
bool use_unicode();

// `fraction` (0 to 1) of `width` columns, padded with blanks to `width`.
std::string bar(double fraction, int width, bool unicode);
// One column for each fraction (0 to 1), as high as it is large; '.' for 0. More than `max_columns` of them share
// columns, the largest showing.
std::string columns(const std::vector<double>& fractions, size_t max_columns, bool unicode);

std::string with_commas(int64_t number);         // 1,234,567
std::string bytes_text(double bytes);            // 1.5 MiB
std::string duration_text(double microseconds);  // 12.3 us, 4.56 ms, 7.89 s
// "1 row", "2 rows", with commas.
std::string counted(int64_t number, const std::string& thing);
// "0-3, 7"
std::string ranges_text(const std::vector<int64_t>& sorted);

}  // namespace moeway::cli
