"""The ranks of a job, once they have found each other."""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_void_p
from types import TracebackType
from typing import Any, Optional, Tuple, Type

from moeway._library import call, lib
from moeway._structs import CommunicatorOptionsStruct
from moeway.bootstrap import Bootstrap
from moeway.enums import DeviceType
from moeway.errors import InvalidArgumentError

__all__ = ["Communicator"]


def _device_of(device: Any) -> Tuple[DeviceType, int]:
    """"cpu", "cuda" (torch's current device, or 0), "cuda:1", or a torch.device."""
    kind, _, index = str(device).partition(":")
    if kind == "cpu":
        return DeviceType.CPU, 0
    if kind != "cuda" or (index and not index.isdigit()):
        raise InvalidArgumentError(f"device is {device!r}, expected 'cpu', 'cuda' or 'cuda:<index>'")
    if index:
        return DeviceType.CUDA, int(index)
    torch = sys.modules.get("torch")
    return DeviceType.CUDA, torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0


class Communicator:
    """The ranks of a job. Creation is collective; a context manager closes it.

    `device` is where this rank's tensors lie and its kernels run: "cpu" (default), "cuda", "cuda:1". `timeout_ms`
    limits every collective step at creation. Use by one thread at a time.

    Raises the MoewayError of what failed; a bootstrap whose callback raised gives PeerLostError with that as its cause.
    """

    def __init__(self, bootstrap: Bootstrap, *, device: Any = "cpu", timeout_ms: Optional[int] = None) -> None:
        self._handle = c_void_p()
        try:
            self.device_type, self.device_index = _device_of(device)
        except Exception:
            lib.moeway_bootstrap_destroy(bootstrap._release())  # The other ranks hear of it rather than wait.
            raise
        options = CommunicatorOptionsStruct()
        options.timeout_ms = lib.moeway_default_timeout_ms() if timeout_ms is None else timeout_ms
        options.device_type, options.device_index = self.device_type, self.device_index
        self._all_gather = bootstrap._all_gather
        self.collective_call(lib.moeway_communicator_create, bootstrap._release(), ctypes.byref(options),
                             ctypes.byref(self._handle))

    def collective_call(self, function: Any, *arguments: Any) -> None:
        """Calls a C function that may use the bootstrap. Raises its MoewayError."""
        (call if self._all_gather is None else self._all_gather.call)(function, *arguments)

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return lib.moeway_communicator_rank(self._handle)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return lib.moeway_communicator_size(self._handle)

    @property
    def transport(self) -> str:
        """The transport in use, for example "host processes"; "none" once it is closed."""
        return lib.moeway_communicator_transport(self._handle).decode()

    def barrier(self) -> None:
        """Waits until every rank has called it. Collective; ends at the deadline."""
        self.collective_call(lib.moeway_communicator_barrier, self._handle)

    def close(self) -> None:
        """Releases what the communicator holds. Not collective; never waits. AllToAll objects made of it stay valid."""
        call(lib.moeway_communicator_close, self._handle)

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        lib.moeway_communicator_destroy(self._handle)
