"""Exceptions: one class per status of the C interface, all of them MoewayError.

The message is the library's own: it names the argument, its value and what was expected. Classes that say what a
built-in exception says are that as well, so `except TimeoutError` catches a deadline that has passed.
"""

from __future__ import annotations

from typing import Dict, Type

__all__ = [
    "DeadlineExceededError", "InternalError", "InvalidArgumentError", "MismatchError", "MoewayError",
    "OutOfMemoryError", "PeerLostError", "RowOverflowError", "UnavailableError", "WrongStateError",
]


class MoewayError(Exception):
    """A call of the library failed. `status` is the moeway_status of c_api.h, `name` its name."""

    status = -1
    name = "UNKNOWN"


class InvalidArgumentError(MoewayError, ValueError):
    """A caller's mistake in an argument. Nothing was sent; a correct call may follow."""

    status, name = 1, "INVALID_ARGUMENT"


class WrongStateError(MoewayError):
    """A call out of order, a closed object, or a routing that is no longer valid."""

    status, name = 2, "WRONG_STATE"


class MismatchError(MoewayError):
    """Ranks disagree on a value that must be equal."""

    status, name = 3, "MISMATCH"


class DeadlineExceededError(MoewayError, TimeoutError):
    """A peer did not do its part in time. The object has failed: close it."""

    status, name = 4, "DEADLINE_EXCEEDED"


class PeerLostError(MoewayError, ConnectionError):
    """A peer's process has ended, or a peer reported a failure. The object has failed: close it."""

    status, name = 5, "PEER_LOST"


class OutOfMemoryError(MoewayError, MemoryError):
    """Memory that was asked for cannot be had."""

    status, name = 6, "OUT_OF_MEMORY"


class UnavailableError(MoewayError):
    """This machine or build lacks what was asked for."""

    status, name = 7, "UNAVAILABLE"


class InternalError(MoewayError):
    """A fault of the library or of the operating system."""

    status, name = 8, "INTERNAL"


class RowOverflowError(MoewayError):
    """More rows came than max_recv_tokens has room for. The object has failed: close it."""

    status, name = 9, "OVERFLOW"


_BY_STATUS: Dict[int, Type[MoewayError]] = {
    error.status: error for error in (InvalidArgumentError, WrongStateError, MismatchError, DeadlineExceededError,
                                      PeerLostError, OutOfMemoryError, UnavailableError, InternalError,
                                      RowOverflowError)
}


def error_of(status: int, message: str) -> MoewayError:
    """The exception for a status that is not OK."""
    return _BY_STATUS.get(status, MoewayError)(message)
