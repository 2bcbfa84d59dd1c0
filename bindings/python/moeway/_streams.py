"""The CUDA stream that the caller works on: the current one of torch or cupy, if loaded, else the default stream."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Optional

__all__ = ["current_stream", "stream_pointer"]


@functools.lru_cache(maxsize=None)
def _stream_of_torch(torch: Any) -> Optional[Callable[[int], int]]:
    """What gives torch's current stream of a device; None if torch has no CUDA."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.init()
    # The number at once, without an object around it, which takes longer than the rest of a call; torch's own compiler
    # uses it.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda device_index: torch.cuda.current_stream(device_index).cuda_stream)


def current_stream(device_index: int) -> Optional[int]:
    """The cudaStream_t as a number; None is the default stream."""
    torch = sys.modules.get("torch")
    stream_of = None if torch is None else _stream_of_torch(torch)
    if stream_of is not None:
        return stream_of(device_index) or None
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        return cupy.cuda.get_current_stream(device_index).ptr or None
    return None


def stream_pointer(stream: Any) -> Optional[int]:
    """A cudaStream_t of a number, a torch stream (`cuda_stream`) or a cupy stream (`ptr`)."""
    for name in ("cuda_stream", "ptr"):
        if hasattr(stream, name):
            stream = getattr(stream, name)
    return int(stream) or None
