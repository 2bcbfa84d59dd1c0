// Ranks in messages: "rank 2", "ranks 0-3, 7".
#pragma once

#include <string>
#include <vector>

namespace moeway {

// `ranks` ascending and not empty.
std::string rank_list(const std::vector<int>& ranks);

}  // namespace moeway
