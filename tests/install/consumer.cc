// Uses what a C++ program finds in an installed moeway: every header, and functions of the library itself.
#include <moeway/moeway.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  const std::string version = moeway_version();
  const std::string expected = argc > 1 ? argv[1] : "";
  if (version != expected) {
    std::printf("moeway_version() is %s, expected %s\n", version.c_str(), expected.c_str());
    return 1;
  }
  moeway::AllToAllConfig config;
  config.num_experts = 8;
  config.topk = 2;
  config.hidden = 64;
  config.max_tokens = 16;
  const moeway::Result<moeway::AllToAllSizes> sizes = moeway::all_to_all_sizes(config, 1, 3);
  if (!sizes.ok() || sizes.value().num_local_experts != 3) {
    std::printf("all_to_all_sizes: %s\n", sizes.status().to_string().c_str());
    return 1;
  }
  const moeway::ThreadGroup group(1);
  moeway::Result<moeway::Bootstrap> bootstrap = moeway::Bootstrap::threads(group, 0);
  if (!bootstrap.ok()) {
    std::printf("Bootstrap::threads: %s\n", bootstrap.status().to_string().c_str());
    return 1;
  }
  const auto communicator = moeway::Communicator::create(std::move(bootstrap).value());
  if (!communicator.ok() || communicator.value().size() != 1) {
    std::printf("Communicator::create: %s\n", communicator.status().to_string().c_str());
    return 1;
  }
  return 0;
}
