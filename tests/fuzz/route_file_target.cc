// Route files of both forms: the input is the file, read as three different runs would.
#include "cli/route_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <string>

#include "base/descriptor.h"
#include "fuzz/target.h"

namespace moeway::fuzz {
namespace {

void require_consistent(const cli::Routes& routes, const cli::RouteFileOptions& options) {
  require(routes.topk >= 1 && routes.num_experts >= 1, "routes have a topk and experts");
  require(static_cast<int>(routes.of_rank.size()) == options.num_ranks, "routes are dealt to the ranks");
  int64_t num_tokens = 0;
  for (const auto& cycle : routes.of_rank) {
    for (const cli::Batch& batch : cycle) {
      const auto entries = static_cast<size_t>(batch.num_tokens * routes.topk);
      require(batch.experts.size() == entries && batch.weights.size() == entries, "a batch is a whole table");
      require(batch.num_tokens <= routes.max_tokens, "max_tokens is the largest batch");
      require(!options.tokens || batch.num_tokens <= *options.tokens, "batches are cut to --tokens");
      for (const int32_t expert : batch.experts)
        require(expert >= -1 && expert < routes.num_experts, "an expert is one of the experts");
      for (const float weight : batch.weights) require(std::isfinite(weight), "weights are finite");
      num_tokens += batch.num_tokens;
    }
  }
  require(num_tokens == routes.num_tokens, "tokens are counted");
}

void read(const cli::RouteFileOptions& options) {
  const Result<cli::Routes> routes = cli::read_route_file(options);
  require_readable(routes.status());
  if (!routes.ok())
    require(routes.status().message().rfind(options.path, 0) == 0, "a message names the file",
            routes.status().message());
  if (routes.ok()) require_consistent(routes.value(), options);
}

void run(Bytes input) {
  const Descriptor file(memfd_create("routes", MFD_CLOEXEC));
  require(write(file.get(), input.data(), input.size()) == static_cast<ssize_t>(input.size()), "memory for the file");
  cli::RouteFileOptions options;
  options.path = "/proc/self/fd/" + std::to_string(file.get());
  options.num_ranks = 2;
  options.rounds = 2;
  read(options);
  options.tokens = 3;
  options.num_ranks = 3;
  options.rounds = 1'000'000'000;
  read(options);
  options.tokens.reset();
  options.experts = 8;
  options.layer = 1;
  read(options);
}

const Registration kTarget("route_file", run);

}  // namespace
}  // namespace moeway::fuzz
