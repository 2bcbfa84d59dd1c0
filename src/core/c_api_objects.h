// What the C interface's handles hold.
#pragma once

#include <moeway/c_api.h>

#include <memory>

#include "core/all_to_all.h"
#include "core/communicator.h"

struct moeway_communicator {
  std::shared_ptr<moeway::core::Communicator> core;  // Null once closed.
  int rank;
  int size;
};

struct moeway_all_to_all {
  std::unique_ptr<moeway::core::AllToAll> core;
};
