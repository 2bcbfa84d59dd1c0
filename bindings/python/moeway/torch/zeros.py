"""Zeros of any type."""

from __future__ import annotations

from typing import Any, Sequence

import torch

__all__ = ["zeros"]


def zeros(shape: Sequence[int], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """As torch.zeros, which some versions lack for fp8 on the CPU."""
    if dtype.is_floating_point and dtype.itemsize == 1:
        return torch.zeros(tuple(shape), dtype=torch.uint8, device=device).view(dtype)
    return torch.zeros(tuple(shape), dtype=dtype, device=device)
