"""deep_ep.EventOverlap, EventHandle and Config.

moeway enqueues on the current stream, so an event is one of that stream: waiting for it there waits for nothing,
waiting on another stream is what it is for. On CPU ranks a call is over when it returns, and so is its event.
"""

from __future__ import annotations

import dataclasses
from types import TracebackType
from typing import Any, Optional, Tuple, Type

import torch

__all__ = ["Config", "EventHandle", "EventOverlap"]


class EventHandle:
    """A point in the current CUDA stream; nothing where there is no CUDA."""

    def __init__(self) -> None:
        self._event = torch.cuda.current_stream().record_event() if torch.cuda.is_available() else None

    def current_stream_wait(self) -> None:
        """The current stream waits for this point."""
        if self._event is not None:
            torch.cuda.current_stream().wait_event(self._event)


class EventOverlap:
    """An event with the tensors that must live until then; as a context manager it waits when the block ends."""

    def __init__(self, event: Optional[EventHandle] = None, extra_tensors: Optional[Tuple[Any, ...]] = None) -> None:
        self.event = event
        self.extra_tensors = extra_tensors

    def current_stream_wait(self) -> None:
        """The current stream waits for the event; without one, there is nothing to wait for."""
        if self.event is not None:
            self.event.current_stream_wait()

    def __enter__(self) -> "EventOverlap":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.current_stream_wait()


@dataclasses.dataclass(frozen=True)
class Config:
    """Tuning of the original's kernels. moeway ignores it."""

    num_sms: int = 20
    num_max_nvl_chunked_send_tokens: int = 6
    num_max_nvl_chunked_recv_tokens: int = 256
    num_max_rdma_chunked_send_tokens: int = 6
    num_max_rdma_chunked_recv_tokens: int = 256

    def get_nvl_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0: moeway takes its memory when a shape comes first, whatever a Buffer was created with."""
        return 0

    def get_rdma_buffer_size_hint(self, hidden_bytes: int, num_ranks: int) -> int:
        """0, for the same reason."""
        return 0
