"""Communicators of torch.distributed process groups."""

from __future__ import annotations

from typing import Any, Optional

import torch

from moeway.bootstrap import Bootstrap
from moeway.communicator import Communicator

__all__ = ["communicator"]


def communicator(group: Any = None, *, device: Any = None, timeout_ms: Optional[int] = None) -> Communicator:
    """A Communicator of the ranks of a process group; None is the default group. Collective.

    `device`: by default torch's current CUDA device, or "cpu" where there is none. The group carries a few messages
    while communicators and their objects are created, none in a round; how long it waits there is its own timeout.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Communicator(Bootstrap.process_group(group), device=device, timeout_ms=timeout_ms)
