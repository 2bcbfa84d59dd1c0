// What threads and processes have in common in running one rank. Part of ranks.cc and rank_processes.cc.
#pragma once

#include <exception>
#include <utility>

#include "multi_rank/place.h"
#include "multi_rank/ranks.h"

namespace moeway::multi_rank {

struct RankAccess {
  // Makes the rank's communicator from `meet()`, runs the body, lets the communicator go.
  template <class Meet>
  static void run(Rank& rank, const RanksOptions& options, Meet meet, const std::function<void(Rank&)>& body) {
    place::enter(rank.rank(), options.num_ranks);
    run_entered(rank, options, meet, body);
    place::leave();
  }

  template <class Meet>
  static void run_entered(Rank& rank, const RanksOptions& options, Meet meet, const std::function<void(Rank&)>& body) {
    if (options.with_communicator) {
      Result<Bootstrap> bootstrap = meet();
      if (!rank.expect_ok(bootstrap.status(), "bootstrap")) return;
      Result<Communicator> communicator =
          Communicator::create(std::move(bootstrap).value(), place::communicator_options());
      if (!rank.expect_ok(communicator.status(), "communicator")) return;
      rank.communicator_.emplace(std::move(communicator).value());
    }
    try {
      body(rank);
    } catch (const std::exception& exception) {
      rank.fail(std::string("exception: ") + exception.what());
    }
    rank.communicator_.reset();
  }

  static void collect(Rank& rank, RanksResult& result) {
    result.failures += rank.failures_;
    result.given.push_back(std::move(rank.given_));
  }

  static const std::string& failures(const Rank& rank) { return rank.failures_; }
  static const std::vector<std::byte>& given(const Rank& rank) { return rank.given_; }
};

RanksResult run_processes(const RanksOptions& options, const std::function<void(Rank&)>& body);

}  // namespace moeway::multi_rank
