// A range on a profiler's timeline (Nsight Systems and others that read NVTX), from the object's making to its end.
//
// NVTX is headers alone: the first range looks whether a profiler has named its library in the environment, and without one
// a range is a test of a pointer. Builds without CUDA have nothing of it.
#pragma once

#if defined(MOEWAY_WITH_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif

namespace moeway::exec {

class TraceRange {
 public:
#if defined(MOEWAY_WITH_NVTX)
  // `name`: static memory.
  explicit TraceRange(const char* name) { nvtxRangePushA(name); }
  ~TraceRange() { nvtxRangePop(); }
#else
  explicit TraceRange(const char*) {}
  ~TraceRange() {}  // Not "= default": a range is there for its end, so that one which is not read is no mistake.
#endif
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;
};

}  // namespace moeway::exec
