// C interface: status, version, element types and expert ownership.
#include <moeway/c_api.h>

#include <string>

#include "base/env.h"
#include "base/format.h"
#include "core/c_api_call.h"
#include "layout/experts.h"

namespace moeway::core {
namespace {

// A thread's own: messages of calls that fail at the same time do not mix.
std::string& last_error() {
  thread_local std::string message;
  return message;
}

}  // namespace

moeway_status finish_call(const Status& status) {
  if (!status.ok()) last_error() = status.message();
  return status.code();
}

Status null_argument(const char* name) { return invalid_argument("{} is null, expected an object or a struct", name); }

}  // namespace moeway::core

using moeway::layout::Experts;

const char* moeway_last_error(void) { return moeway::core::last_error().c_str(); }

const char* moeway_status_name(moeway_status status) {
  switch (status) {
    case MOEWAY_OK:
      return "OK";
    case MOEWAY_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case MOEWAY_WRONG_STATE:
      return "WRONG_STATE";
    case MOEWAY_MISMATCH:
      return "MISMATCH";
    case MOEWAY_DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case MOEWAY_PEER_LOST:
      return "PEER_LOST";
    case MOEWAY_OUT_OF_MEMORY:
      return "OUT_OF_MEMORY";
    case MOEWAY_UNAVAILABLE:
      return "UNAVAILABLE";
    case MOEWAY_INTERNAL:
      return "INTERNAL";
    case MOEWAY_OVERFLOW:
      return "OVERFLOW";
  }
  return "UNKNOWN";
}

int64_t moeway_default_timeout_ms(void) { return moeway::env().timeout_ms; }

const char* moeway_version(void) { return MOEWAY_VERSION_STRING; }

int64_t moeway_dtype_bytes(moeway_dtype dtype) {
  switch (dtype) {
    case MOEWAY_BF16:
    case MOEWAY_F16:
      return 2;
    case MOEWAY_F32:
    case MOEWAY_I32:
      return 4;
    case MOEWAY_I64:
      return 8;
    case MOEWAY_F8_E4M3:
    case MOEWAY_UE8M0:
    case MOEWAY_BYTES:
      return 1;
  }
  return 0;
}

const char* moeway_dtype_name(moeway_dtype dtype) {
  switch (dtype) {
    case MOEWAY_BF16:
      return "bf16";
    case MOEWAY_F16:
      return "f16";
    case MOEWAY_F32:
      return "f32";
    case MOEWAY_F8_E4M3:
      return "f8_e4m3";
    case MOEWAY_UE8M0:
      return "ue8m0";
    case MOEWAY_BYTES:
      return "bytes";
    case MOEWAY_I32:
      return "i32";
    case MOEWAY_I64:
      return "i64";
  }
  return "unknown";
}

int32_t moeway_expert_owner(int32_t expert, int32_t num_experts, int32_t num_ranks) {
  if (num_ranks < 1 || expert < 0 || expert >= num_experts) return -1;
  return Experts{num_experts, num_ranks}.owner(expert);
}

int32_t moeway_first_expert(int32_t rank, int32_t num_experts, int32_t num_ranks) {
  if (num_experts < 1 || rank < 0 || rank >= num_ranks) return -1;
  return Experts{num_experts, num_ranks}.first(rank);
}

int32_t moeway_num_local_experts(int32_t rank, int32_t num_experts, int32_t num_ranks) {
  if (num_experts < 1 || rank < 0 || rank >= num_ranks) return -1;
  return Experts{num_experts, num_ranks}.count(rank);
}
