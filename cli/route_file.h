// Reads recorded routing decisions (JSON lines, see route_record.h) and deals them to ranks.
#pragma once

#include <moeway/status.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cli/routes.h"

namespace moeway::cli {

struct RouteFileOptions {
  std::string path;
  int num_ranks = 1;
  int64_t rounds = 1;              // Reading stops when every rank has a batch for each round.
  std::optional<int64_t> tokens;   // Cut the tokens into batches of so many. Default: batches as recorded, or 128.
  std::optional<int32_t> experts;  // Number of experts. Default: num_experts of the file, or 1 + the largest id.
  std::optional<int64_t> layer;    // Take only records of this layer. Default: all.
};

// Batch b goes to rank b mod num_ranks; if the records come from several ranks (`rank`), those of rank r go to rank
// r mod num_ranks. The file is read line by line; what is kept in memory are the batches alone. Errors name the file,
// the line, the field, its value and what was expected.
Result<Routes> read_route_file(const RouteFileOptions& options);

}  // namespace moeway::cli
