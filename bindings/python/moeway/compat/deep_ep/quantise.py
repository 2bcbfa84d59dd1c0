"""fp8 e4m3 with a scale per block of 128 elements, made by torch before a dispatch."""

from __future__ import annotations

from typing import Tuple

import torch

from moeway.errors import InvalidArgumentError

__all__ = ["BLOCK", "quantise"]

BLOCK = 128
_LARGEST = 448.0  # of e4m3
_SMALLEST_MAXIMUM = 1e-4  # of a block: blocks of zeros have a scale, too


def quantise(x: torch.Tensor, round_scale: bool, use_ue8m0: bool) -> Tuple[torch.Tensor, torch.Tensor]:
    """x [T, H] as float8_e4m3fn and its scales [T, H / 128]: float32, or with use_ue8m0 the exponents as uint8.

    x is about the elements times their scales. round_scale rounds scales up to powers of two, which use_ue8m0 needs.
    Raises InvalidArgumentError where H is no multiple of a block.
    """
    if x.shape[1] % BLOCK != 0:
        raise InvalidArgumentError(f"hidden is {x.shape[1]}, expected a multiple of {BLOCK} with fp8")
    if use_ue8m0 and not round_scale:
        raise InvalidArgumentError("use_ue8m0 is set without round_scale: UE8M0 holds powers of two only")
    blocks = x.float().view(x.shape[0], x.shape[1] // BLOCK, BLOCK)
    scales = blocks.abs().amax(dim=-1).clamp(min=_SMALLEST_MAXIMUM) / _LARGEST
    if round_scale:
        scales = torch.exp2(torch.ceil(torch.log2(scales)))
    elements = (blocks / scales.unsqueeze(-1)).view(x.shape).to(torch.float8_e4m3fn)
    if use_ue8m0:
        scales = (scales.view(torch.int32) >> 23).to(torch.uint8)
    return elements, scales
