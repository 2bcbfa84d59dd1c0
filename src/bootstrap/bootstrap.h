// The ways in which ranks meet. Each returns a Collective; contracts and arguments as in moeway_bootstrap_create_*
// (c_api.h).
#pragma once

#include <moeway/c_api.h>
#include <moeway/status.h>

#include <chrono>
#include <memory>
#include <string>

#include "base/collective.h"

namespace moeway::bootstrap {

class ThreadMeeting;  // What ranks as threads share.

Result<std::shared_ptr<ThreadMeeting>> make_thread_meeting(int num_ranks);
Result<std::unique_ptr<Collective>> meet_threads(std::shared_ptr<ThreadMeeting> meeting, int rank);
Result<std::unique_ptr<Collective>> meet_local(const std::string& directory, int rank, int num_ranks,
                                               std::chrono::milliseconds timeout);
Result<std::unique_ptr<Collective>> meet_tcp(const std::string& address, int port, const std::string& secret, int rank,
                                             int num_ranks, std::chrono::milliseconds timeout);
Result<std::unique_ptr<Collective>> meet_env(std::chrono::milliseconds timeout);
Result<std::unique_ptr<Collective>> meet_callback(int rank, int num_ranks, moeway_all_gather_fn all_gather,
                                                  void* context);

}  // namespace moeway::bootstrap
