// What every function of the C interface does around its work: keeps the message of a failure, and lets no exception
// out.
#pragma once

#include <moeway/c_api.h>
#include <moeway/status.h>

#include <exception>
#include <new>

#include "base/collective.h"

namespace moeway::core {

// Remembers a failure's message for moeway_last_error() and gives its code.
moeway_status finish_call(const Status& status);

// Runs `work`, which returns a Status. The library throws nothing itself, but memory can run out in the standard
// library.
template <class Work>
moeway_status c_call(Work work) {
  try {
    return finish_call(work());
  } catch (const std::bad_alloc&) {
    return finish_call(Status(MOEWAY_OUT_OF_MEMORY, "out of memory"));
  } catch (const std::exception& failure) {
    return finish_call(Status(MOEWAY_INTERNAL, failure.what()));
  }
}

// Runs `work`, a collective step. If it ends by an exception the other ranks are told: they would wait for the rest.
template <class Work>
Status or_abandon(Collective& collective, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    collective.abandon(Status(MOEWAY_OUT_OF_MEMORY, "out of memory"));
    throw;
  } catch (const std::exception& failure) {
    collective.abandon(Status(MOEWAY_INTERNAL, failure.what()));
    throw;
  }
}

// The Status of a missing pointer argument.
Status null_argument(const char* name);

}  // namespace moeway::core
