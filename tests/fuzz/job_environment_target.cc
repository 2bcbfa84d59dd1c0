// The environment that a launcher leaves: the input has lines NAME=VALUE.
#include "bootstrap/job_environment.h"

#include <map>
#include <string>

#include "fuzz/target.h"

namespace moeway::fuzz {
namespace {

void run(Bytes input) {
  std::map<std::string, std::string> variables;
  const std::string text(input.begin(), input.end());
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const size_t equals = line.find('=');
    if (equals != std::string::npos) variables[line.substr(0, equals)] = line.substr(equals + 1);
    begin = end + 1;
  }
  const auto job = bootstrap::read_job_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  require_readable(job.status());
  if (!job.ok()) {
    require(job.status().code() == MOEWAY_INVALID_ARGUMENT, "a wrong variable is an invalid argument");
    return;
  }
  const bootstrap::JobEnvironment& read = job.value();
  require(read.num_ranks >= 1 && read.rank >= 0 && read.rank < read.num_ranks, "a rank is one of the ranks");
  if (read.num_ranks == 1) return;
  require(read.port >= 1 && read.port <= 65535, "a port can be one");
  require(!read.address.empty() && !read.secret.empty(), "several ranks have an address and a secret");
}

const Registration kTarget("job_environment", run);

}  // namespace
}  // namespace moeway::fuzz
