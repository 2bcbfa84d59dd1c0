// Order statistics of measurements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace moeway::cli {

// The value that a share `q` of the values do not exceed. At least one value.
inline double quantile(std::vector<double> values, double q) {
  const auto index = static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

}  // namespace moeway::cli
