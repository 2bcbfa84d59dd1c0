"""The CUDA stream that the caller works on: the current one of torch or cupy, if loaded, else the default stream."""

from __future__ import annotations

import sys
from typing import Any, Optional

__all__ = ["current_stream", "stream_pointer"]


def current_stream(device_index: int) -> Optional[int]:
    """The cudaStream_t as a number; None is the default stream."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.current_stream(device_index).cuda_stream or None
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
