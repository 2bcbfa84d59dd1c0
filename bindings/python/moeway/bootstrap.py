"""How the ranks of a job find each other. docs/bootstrap.md says what each way promises."""

from __future__ import annotations

import ctypes
import os
from ctypes import c_void_p
from typing import Any, Callable, Optional, Sequence, Union

from moeway._library import ALL_GATHER, call, lib
from moeway.errors import InvalidArgumentError, WrongStateError

__all__ = ["Bootstrap", "ThreadGroup"]

AllGather = Callable[[bytes], Sequence[bytes]]


def _timeout(timeout_ms: Optional[int]) -> int:
    return lib.moeway_default_timeout_ms() if timeout_ms is None else timeout_ms


class ThreadGroup:
    """Ranks as threads of one process: make one group, then one Bootstrap.threads(group, rank) per rank."""

    def __init__(self, num_ranks: int) -> None:
        self._handle = c_void_p()
        call(lib.moeway_thread_group_create, num_ranks, ctypes.byref(self._handle))
        self.num_ranks = num_ranks

    def __del__(self) -> None:
        lib.moeway_thread_group_destroy(self._handle)


class Bootstrap:
    """One rank's way into the job. Made by one of the class methods; a Communicator takes it over.

    All of them raise MoewayError subclasses: DeadlineExceededError if ranks do not come within `timeout_ms` (default
    30000, or MOEWAY_TIMEOUT_MS), PeerLostError, MismatchError, InvalidArgumentError.
    """

    def __init__(self) -> None:
        self._handle = c_void_p()
        self._all_gather: Optional["_Callback"] = None

    @classmethod
    def _create(cls, function: Any, *arguments: Any) -> "Bootstrap":
        bootstrap = cls()
        call(function, *arguments, ctypes.byref(bootstrap._handle))
        return bootstrap

    @classmethod
    def threads(cls, group: ThreadGroup, rank: int) -> "Bootstrap":
        """Rank `rank` of a group of threads."""
        return cls._create(lib.moeway_bootstrap_create_threads, group._handle, rank)

    @classmethod
    def local(cls, directory: Union[str, "os.PathLike[str]"], rank: int, num_ranks: int,
              timeout_ms: Optional[int] = None) -> "Bootstrap":
        """Processes of one user on one host, which meet in a directory that is closed to others (mode 0700).

        One job per directory. Collective; returns when all ranks are there.
        """
        return cls._create(lib.moeway_bootstrap_create_local, os.fsencode(directory), rank, num_ranks,
                           _timeout(timeout_ms))

    @classmethod
    def tcp(cls, address: str, port: int, secret: str, rank: int, num_ranks: int,
            timeout_ms: Optional[int] = None) -> "Bootstrap":
        """Processes that reach rank 0 at address:port and know the same non-empty `secret`. Collective."""
        return cls._create(lib.moeway_bootstrap_create_tcp, address.encode(), port, secret.encode(), rank, num_ranks,
                           _timeout(timeout_ms))

    @classmethod
    def env(cls, timeout_ms: Optional[int] = None) -> "Bootstrap":
        """Rank, size and rendezvous from the environment of torchrun, Open MPI or Slurm, or MOEWAY_*. Collective."""
        return cls._create(lib.moeway_bootstrap_create_env, _timeout(timeout_ms))

    @classmethod
    def callback(cls, rank: int, num_ranks: int, all_gather: AllGather) -> "Bootstrap":
        """A caller's own all-gather: given this rank's bytes, it returns every rank's, in rank order.

        It is called while communicators and their objects are created, and must end in time by itself: the library's
        deadline cannot reach into it. An exception in it fails that creation with PeerLostError, whose cause it is.
        """
        bootstrap = cls()
        bootstrap._all_gather = _Callback(all_gather, num_ranks)
        call(lib.moeway_bootstrap_create_callback, rank, num_ranks, bootstrap._all_gather.function, None,
             ctypes.byref(bootstrap._handle))
        return bootstrap

    @classmethod
    def process_group(cls, group: Any = None) -> "Bootstrap":
        """The ranks of a torch.distributed process group; None is the default group.

        How long a gather waits for ranks that do not come is the group's own timeout.
        """
        from torch import distributed

        num_ranks = distributed.get_world_size(group)

        def all_gather(data: bytes) -> Sequence[bytes]:
            gathered = [b""] * num_ranks
            distributed.all_gather_object(gathered, data, group)
            return gathered

        return cls.callback(distributed.get_rank(group), num_ranks, all_gather)

    @classmethod
    def mpi(cls, communicator: Any) -> "Bootstrap":
        """The ranks of an mpi4py communicator."""
        return cls.callback(communicator.Get_rank(), communicator.Get_size(), communicator.allgather)

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return lib.moeway_bootstrap_rank(self._handle)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return lib.moeway_bootstrap_size(self._handle)

    def _release(self) -> c_void_p:
        """Hands the C object over to a communicator."""
        if not self._handle:
            raise WrongStateError("the bootstrap has been used: one communicator takes it over")
        handle, self._handle = self._handle, c_void_p()
        return handle

    def __del__(self) -> None:
        lib.moeway_bootstrap_destroy(self._handle)


class _Callback:
    """A Python all-gather as a moeway_all_gather_fn. Lives as long as anything that may call it."""

    def __init__(self, all_gather: AllGather, num_ranks: int) -> None:
        if not callable(all_gather):
            raise InvalidArgumentError(f"all_gather is a {type(all_gather).__name__}, expected a function")
        self._all_gather = all_gather
        self._num_ranks = num_ranks
        self._raised: Optional[BaseException] = None
        self.function = ALL_GATHER(self._run)

    def _run(self, _context: Optional[int], data: Optional[int], num_bytes: int, out: int) -> int:
        # An exception cannot pass through C: it is kept, and the call fails. BaseException, for KeyboardInterrupt too.
        try:
            gathered = self._all_gather(ctypes.string_at(data, num_bytes) if data else b"")
            lengths = [len(part) for part in gathered]
            if lengths != [num_bytes] * self._num_ranks:
                raise InvalidArgumentError(f"all_gather returned parts of {lengths} bytes, expected {self._num_ranks} "
                                           f"of {num_bytes}")
            ctypes.memmove(out, b"".join(gathered), num_bytes * self._num_ranks)
        except BaseException as raised:
            self._raised = raised
            return 1
        return 0

    def call(self, function: Any, *arguments: Any) -> None:
        """As _library.call; an exception of the all-gather is the cause of the error."""
        self._raised = None
        try:
            call(function, *arguments)
        except Exception as error:
            raise error from self._raised
