"""The interface of pplx-kernels over moeway. docs/compat.md says what differs."""

from moeway.compat.pplx_kernels.all_to_all import AllToAll
from moeway.compat.pplx_kernels.nvshmem import (nvshmem_alloc_empty_unique_id, nvshmem_alltoall, nvshmem_barrier_all,
                                                nvshmem_barrier_all_on_current_stream, nvshmem_finalize,
                                                nvshmem_get_unique_id, nvshmem_init, nvshmem_malloc, nvshmem_my_pe,
                                                nvshmem_n_pes, nvshmem_unique_id_size)

__all__ = [
    "AllToAll", "nvshmem_alloc_empty_unique_id", "nvshmem_alltoall", "nvshmem_barrier_all",
    "nvshmem_barrier_all_on_current_stream", "nvshmem_finalize", "nvshmem_get_unique_id", "nvshmem_init",
    "nvshmem_malloc", "nvshmem_my_pe", "nvshmem_n_pes", "nvshmem_unique_id_size",
]
