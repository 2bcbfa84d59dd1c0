#include "multi_rank/trace.h"

#include <cctype>
#include <cstdlib>
#include <fstream>

namespace moeway::multi_rank {
namespace {

// The numbers of the array of arrays behind `"key":`, one after another.
std::vector<double> numbers_of(const std::string& line, const std::string& key) {
  std::vector<double> numbers;
  size_t at = line.find("\"" + key + "\":");
  if (at == std::string::npos) return numbers;
  at = line.find('[', at);
  int depth = 0;
  while (at < line.size()) {
    const char c = line[at];
    if (c == '[') ++depth;
    if (c == ']' && --depth == 0) break;
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c)) != 0) {
      char* end = nullptr;
      numbers.push_back(std::strtod(line.c_str() + at, &end));
      at = static_cast<size_t>(end - line.c_str());
    } else {
      ++at;
    }
  }
  return numbers;
}

int number_of(const std::string& line, const std::string& key) {
  const size_t at = line.find("\"" + key + "\":");
  return at == std::string::npos ? 0 : std::atoi(line.c_str() + at + key.size() + 3);
}

}  // namespace

Trace read_trace(const std::string& path) {
  Trace trace;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    trace.num_experts = number_of(line, "num_experts");
    trace.topk = number_of(line, "topk");
    TraceBatch batch;
    batch.num_tokens = number_of(line, "num_tokens");
    for (const double expert : numbers_of(line, "top_indices")) batch.topk_idx.push_back(static_cast<int64_t>(expert));
    for (const double weight : numbers_of(line, "top_weights"))
      batch.topk_weights.push_back(static_cast<float>(weight));
    const auto routes = static_cast<size_t>(batch.num_tokens * trace.topk);
    if (batch.topk_idx.size() == routes && batch.topk_weights.size() == routes) trace.batches.push_back(batch);
  }
  return trace;
}

}  // namespace moeway::multi_rank
