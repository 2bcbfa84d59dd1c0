// Routings of one rank's tokens, in the shapes that matter: even, skewed, with holes, repeated, piled onto one expert
// or rank.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/random.h"
#include "reference/shape.h"

namespace reference {

enum class Routes {
  kUniform,    // K different experts, all equally likely.
  kZipf,       // K different experts, low numbers far more often.
  kHoles,      // As uniform, but a third of the routes, and now and then a whole token, is -1.
  kRepeats,    // K experts drawn anew each: the same one may come twice.
  kOneExpert,  // Everything to the last expert.
  kOneRank,    // Everything to the experts of one rank.
  kFewRanks,   // Nothing to the upper half of the ranks.
  kNone,       // Nothing but -1.
  kMixed       // Each token takes one of the above.
};
inline constexpr Routes kAllRoutes[] = {Routes::kUniform,  Routes::kZipf,      Routes::kHoles,
                                        Routes::kRepeats,  Routes::kOneExpert, Routes::kOneRank,
                                        Routes::kFewRanks, Routes::kNone,      Routes::kMixed};
const char* routes_name(Routes routes);

// [num_tokens, K]. With shape.distinct_experts no token names an expert twice: what would is -1.
std::vector<int64_t> make_routes(const Shape& shape, Routes routes, int64_t num_tokens, uint64_t seed);

}  // namespace reference
