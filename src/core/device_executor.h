// Kernels on a CUDA device. A build without CUDA has another implementation of this header, which says so.
#pragma once

#include <memory>

#include "core/executor.h"

namespace moeway::core {

// As make_host_executor; `device_index` is the device that `heap` lies on.
Result<std::unique_ptr<Executor>> make_device_executor(const Plan& plan, int rank, int device_index,
                                                       const transport::SymmetricHeap& heap,
                                                       const transport::Transport& transport, const Hooks& hooks);

// See transport/nvlink_transport.h.
Result<std::unique_ptr<transport::Transport>> make_device_transport(int device_index, Collective& collective,
                                                                    Deadline deadline);

}  // namespace moeway::core
