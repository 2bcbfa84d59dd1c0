// The command line of device_round.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace bench {

struct Options {
  int num_ranks = 2;
  std::vector<int> tokens{1, 128};
  bool fp8 = true;
  bool split = false;
  std::string json;
};

// Ends the program with a message and 2 where an option is unknown.
inline Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool more = i + 1 < argc;
    if (name == "--split") {
      options.split = true;
    } else if (name == "--ranks" && more) {
      options.num_ranks = std::atoi(argv[++i]);
    } else if (name == "--dtype" && more) {
      options.fp8 = std::string(argv[++i]) != "bf16";
    } else if (name == "--json" && more) {
      options.json = argv[++i];
    } else if (name == "--tokens" && more) {
      options.tokens.clear();
      std::stringstream list(argv[++i]);
      for (std::string item; std::getline(list, item, ',');) options.tokens.push_back(std::atoi(item.c_str()));
    } else {
      std::fprintf(stderr, "device_round: unknown option %s\n", name.c_str());
      std::exit(2);
    }
  }
  return options;
}

}  // namespace bench
