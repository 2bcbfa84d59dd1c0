"""What is dispatched, and what must come back: the same for every library.

Numbers are chosen so that all types hold them: elements are small integers with a 7 in every block of 128, so that a block's
scale, its largest magnitude / 448, is 1 / 64 and fp8 is exact. Experts multiply by numbers of their own.
"""

import dataclasses

import torch

BLOCK = 128  # Elements that share a scale.


@dataclasses.dataclass(frozen=True)
class Shape:
    """E experts, K routes a token, H elements, T tokens of each rank, W ranks. H is a multiple of BLOCK, E of W."""

    num_ranks: int
    num_experts: int
    topk: int
    hidden: int
    num_tokens: int
    dtype: str  # bf16; fp8: given as fp8 with float32 scales; bf16-to-fp8: given as bf16, moved as fp8 with such scales

    @property
    def num_local_experts(self):
        return self.num_experts // self.num_ranks

    @property
    def is_fp8(self):
        """What moves."""
        return self.dtype != "bf16"


@dataclasses.dataclass
class Batch:
    """A rank's tokens on its device."""

    x: torch.Tensor  # [T, H] bf16, or fp8 with dtype fp8
    scales: torch.Tensor  # [T, H / BLOCK] f32 with dtype fp8, else None
    topk_idx: torch.Tensor  # [T, K] int64, no expert twice
    topk_weights: torch.Tensor  # [T, K] f32
    sums: torch.Tensor  # [T, H] f32: what combine must give
    most: torch.Tensor  # [T, H] f32: the sums of the magnitudes, what rounding is measured against


def factor_of(experts):
    """What an expert multiplies by. `experts`: a tensor of their numbers."""
    return 1.0 + experts % 3


def dequantised(rows, scales):
    """float32 [.., H]; scales [.., H / BLOCK] or None."""
    values = rows.float()
    return values if scales is None else values * scales.repeat_interleave(BLOCK, dim=-1)


def make_batch(shape, rank, number, device):
    """Set `number` of a rank: other numbers and another routing for each."""
    random = torch.Generator().manual_seed(1000 * number + rank)
    x = torch.randint(-2, 4, (shape.num_tokens, shape.hidden), generator=random).float()
    x[:, ::BLOCK] = 7
    order = torch.rand(shape.num_tokens, shape.num_experts, generator=random).argsort(dim=1)
    topk_idx = order[:, :shape.topk].contiguous()
    topk_weights = torch.randint(1, 5, topk_idx.shape, generator=random).float() / 4
    weight = (topk_weights * factor_of(topk_idx)).sum(1, keepdim=True)
    made = [x.bfloat16(), None]
    if shape.dtype == "fp8":
        made = [(x * 64).to(torch.float8_e4m3fn), torch.full((shape.num_tokens, shape.hidden // BLOCK), 1 / 64)]
    tensors = (*made, topk_idx, topk_weights, weight * x, weight * x.abs())
    return Batch(*(None if tensor is None else tensor.to(device) for tensor in tensors))


def num_wrong(batch, y):
    """Elements of y [T, H] that are further from the sums than a few roundings to bf16 can bring them."""
    if y.shape != batch.sums.shape:
        return batch.sums.numel()
    off = (y.float() - batch.sums).abs()
    return int((~(off <= batch.most / 128)).sum())  # A NaN is wrong, too.
