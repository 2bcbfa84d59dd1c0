"""The functions of pplx_kernels.nvshmem. There is no NVSHMEM behind them: the unique id says where ranks meet by TCP,
and what nvshmem_init makes is the communicator of AllToAll.internode.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Optional, Sequence

import torch

from moeway.bootstrap import Bootstrap
from moeway.communicator import Communicator
from moeway.errors import InvalidArgumentError, WrongStateError

__all__ = [
    "initialised_communicator", "nvshmem_alloc_empty_unique_id", "nvshmem_alltoall", "nvshmem_barrier_all",
    "nvshmem_barrier_all_on_current_stream", "nvshmem_finalize", "nvshmem_get_unique_id", "nvshmem_init",
    "nvshmem_malloc", "nvshmem_my_pe", "nvshmem_n_pes", "nvshmem_unique_id_size",
]

_UNIQUE_ID_BYTES = 128

# As in NVSHMEM, one for the process.
_communicator: Optional[Communicator] = None


def initialised_communicator() -> Communicator:
    """What nvshmem_init has made. Raises WrongStateError before that."""
    if _communicator is None:
        raise WrongStateError("nvshmem_init has not been called, or nvshmem_finalize has")
    return _communicator


def nvshmem_unique_id_size() -> int:
    """Bytes of a unique id."""
    return _UNIQUE_ID_BYTES


def nvshmem_alloc_empty_unique_id() -> torch.Tensor:
    """uint8 [nvshmem_unique_id_size()] on the host, for rank 0's to be broadcast into."""
    return torch.zeros(_UNIQUE_ID_BYTES, dtype=torch.uint8)


def _address() -> str:
    named = os.environ.get("MOEWAY_ADDRESS") or os.environ.get("MASTER_ADDR")
    if named:
        return named
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def nvshmem_get_unique_id() -> torch.Tensor:
    """On rank 0: its address, a free port and a secret. MOEWAY_ADDRESS (or MASTER_ADDR) and MOEWAY_PORT come first."""
    port = os.environ.get("MOEWAY_PORT")
    if port is None:
        with socket.socket() as server:
            server.bind(("", 0))
            port = str(server.getsockname()[1])
    text = f"{_address()} {port} {secrets.token_hex(16)}".encode()
    if len(text) > _UNIQUE_ID_BYTES:
        raise InvalidArgumentError(f"address {_address()} is too long for a unique id of {_UNIQUE_ID_BYTES} bytes")
    uid = nvshmem_alloc_empty_unique_id()
    uid[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return uid


def nvshmem_init(uid: torch.Tensor, rank: int, world_size: int) -> int:
    """Meets the other ranks; 0. Collective. On the current CUDA device, or on the CPU where there is none."""
    global _communicator
    if _communicator is not None:
        raise WrongStateError("nvshmem_init has been called already")
    address, port, secret = bytes(uid.cpu().tolist()).rstrip(b"\0").decode().split()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    _communicator = Communicator(Bootstrap.tcp(address, int(port), secret, rank, world_size), device=device)
    return 0


def nvshmem_finalize() -> None:
    """Closes what nvshmem_init has made."""
    global _communicator
    initialised_communicator().close()
    _communicator = None


def nvshmem_my_pe() -> int:
    """This rank."""
    return initialised_communicator().rank


def nvshmem_n_pes() -> int:
    """The number of ranks."""
    return initialised_communicator().size


def nvshmem_barrier_all() -> None:
    """Waits on the host until every rank has called it."""
    initialised_communicator().barrier()


def nvshmem_barrier_all_on_current_stream() -> None:
    """Waits on the host for the current stream, then for the other ranks: stronger than the original, and slower."""
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
    nvshmem_barrier_all()


def nvshmem_malloc(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Not here: raises NotImplementedError."""
    raise NotImplementedError("nvshmem_malloc: moeway gives out no memory of its symmetric heap")


def nvshmem_alltoall(dest: torch.Tensor, source: torch.Tensor) -> None:
    """Not here: raises NotImplementedError."""
    raise NotImplementedError("nvshmem_alltoall: moeway has no dense all-to-all; torch.distributed has one")
