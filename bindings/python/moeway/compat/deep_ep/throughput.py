"""DeepEP's normal mode: a row per received token, and sums without weights.

Its calls name no largest number of tokens. Ranks agree on one at each dispatch by a small exchange of their own, which
the host waits for; the original waits for its counts as well.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Optional, Tuple, Union

import torch

from moeway.all_to_all import AllToAll, Routing
from moeway.communicator import Communicator
from moeway.config import expert_owner
from moeway.errors import InvalidArgumentError

__all__ = ["Handle", "Throughput"]

_Key = Tuple[Any, ...]
_COUNT_BYTES = 8


@dataclasses.dataclass
class Handle:
    """What a dispatch leaves for its combine, and for dispatches along the same routes."""

    topk_idx: torch.Tensor  # [T, K]
    topk_weights: torch.Tensor
    num_experts: int
    max_tokens: int
    rows: torch.Tensor  # int64: which of the W * M rows have come, in order
    round_object: AllToAll
    routing: Routing
    combined: bool = False


@dataclasses.dataclass
class Received:
    """What a dispatch has brought, in the order of (source rank, token)."""

    x: torch.Tensor
    scales: Optional[torch.Tensor]
    topk_idx: torch.Tensor
    topk_weights: torch.Tensor
    num_rows: torch.Tensor

    def aligned_counts(self, alignment: int) -> List[int]:
        """Routes to each local expert, rounded up to a multiple of `alignment`."""
        return [-(-count // alignment) * alignment for count in self.num_rows.tolist()]


class Throughput:
    """The rounds of a Buffer in this mode. An AllToAll is made, collectively, when a shape comes first."""

    def __init__(self, communicator: Communicator, device: torch.device) -> None:
        self._communicator, self._device = communicator, device
        self._objects: Dict[_Key, AllToAll] = {}

    def close(self) -> None:
        """Closes all objects."""
        for made in self._objects.values():
            made.close()

    def layout(self, topk_idx: torch.Tensor, num_experts: int) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens per rank [W], routes per expert [E], and whether a token goes to a rank [T, W]."""
        size, device = self._communicator.size, topk_idx.device
        owners = torch.tensor([*(expert_owner(e, num_experts, size) for e in range(num_experts)), size], device=device)
        experts = torch.where(topk_idx >= 0, topk_idx, num_experts).long()
        in_rank = torch.zeros((len(topk_idx), size + 1), dtype=torch.bool, device=device)
        in_rank.scatter_(1, owners[experts], True)
        in_rank = in_rank[:, :size].contiguous()
        per_expert = torch.zeros(num_experts + 1, dtype=torch.int32, device=device)
        per_expert.scatter_add_(0, experts.flatten(), torch.ones_like(experts.flatten(), dtype=torch.int32))
        return in_rank.sum(0, dtype=torch.int32), per_expert[:num_experts].contiguous(), in_rank

    def dispatch(self, x: torch.Tensor, scales: Optional[torch.Tensor], topk_idx: torch.Tensor,
                 topk_weights: Optional[torch.Tensor], num_experts: int) -> Tuple[Received, Handle]:
        """A dispatch along new routes."""
        if topk_weights is None:
            topk_weights = torch.ones(topk_idx.shape, dtype=torch.float32, device=topk_idx.device)
        max_tokens = self._agree_on_tokens(len(x))
        made = self._values(x, scales, topk_idx.shape[1], num_experts, max_tokens)
        received, rows, routing = self._run(made, x, scales, topk_idx, topk_weights, None)
        return received, Handle(topk_idx, topk_weights, num_experts, max_tokens, rows, made, routing)

    def dispatch_again(self, x: torch.Tensor, scales: Optional[torch.Tensor], handle: Handle) -> Received:
        """Other tokens along the routes of an earlier dispatch; the handle's next combine is this one's."""
        made = self._values(x, scales, handle.topk_idx.shape[1], handle.num_experts, handle.max_tokens)
        received, _, routing = self._run(made, x, scales, handle.topk_idx, handle.topk_weights, handle.rows)
        handle.round_object, handle.routing, handle.combined = made, routing, False
        return received

    def combine(self, x: torch.Tensor, handle: Handle, bias: Union[torch.Tensor, Tuple[torch.Tensor, ...], None],
                topk_weights: Optional[torch.Tensor]) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
        """The sum of the ranks' rows of each token, and of their weights [T, K] if they are given."""
        if x.dtype != torch.bfloat16:
            raise InvalidArgumentError(f"x is {x.dtype}, expected torch.bfloat16")
        if handle.combined:  # Backward sends along the routes of forward, whose round is over.
            zeros = torch.zeros((len(handle.topk_idx), x.shape[1]), dtype=x.dtype, device=x.device)
            self.dispatch_again(zeros, None, handle)
        handle.combined = True
        y = handle.round_object.combine(handle.routing, self._spread(x, handle))
        for part in (bias,) if isinstance(bias, torch.Tensor) else bias or ():
            y = y + part
        return y, None if topk_weights is None else self._sum_weights(topk_weights, handle)

    def _values(self, x: torch.Tensor, scales: Optional[torch.Tensor], topk: int, num_experts: int,
                max_tokens: int) -> AllToAll:
        scale_bytes = 0 if scales is None else scales.shape[1] * scales.element_size()
        return self._object(num_experts=num_experts, topk=topk, hidden=x.shape[1], max_tokens=max_tokens,
                            dispatch_dtype=x.dtype, scales="bytes" if scale_bytes else "none", scale_bytes=scale_bytes,
                            layout="token_major")

    def _object(self, **fields: Any) -> AllToAll:
        key = tuple(fields.values())
        if key not in self._objects:
            self._objects[key] = AllToAll(self._communicator, **fields)
        return self._objects[key]

    def _agree_on_tokens(self, num_tokens: int) -> int:
        """A power of two that no rank's number of tokens exceeds."""
        size = self._communicator.size
        counts = self._object(num_experts=size, topk=size, hidden=1, max_tokens=1, dispatch_dtype="bytes",
                              token_bytes=_COUNT_BYTES, layout="expert_packed", weights="at_combine",
                              distinct_experts=True)
        mine = torch.tensor([[num_tokens]], dtype=torch.int64, device=self._device)
        everyone = torch.arange(size, dtype=torch.int32, device=self._device)[None]
        _, output = counts.dispatch(mine.view(torch.uint8), everyone)
        most = int(output.x.view(torch.int64)[:size].max())
        return 1 << max(most - 1, 0).bit_length()

    @staticmethod
    def _run(made: AllToAll, x: torch.Tensor, scales: Optional[torch.Tensor], topk_idx: torch.Tensor,
             topk_weights: torch.Tensor, rows: Optional[torch.Tensor]) -> Tuple[Received, torch.Tensor, Routing]:
        raw = None if scales is None else scales.contiguous().view(torch.uint8)
        routing, output = made.dispatch(x, topk_idx, topk_weights.float(), raw)
        if rows is None:
            rows = (output.topk_idx >= 0).any(1).nonzero().flatten()
        # Indexing knows no fp8.
        elements = output.x.view(torch.uint8)[rows].view(x.dtype)
        received_scales = None if scales is None else output.scales[rows].view(scales.dtype)
        return (Received(elements, received_scales, output.topk_idx[rows].long(), output.topk_weights[rows],
                         output.num_rows), rows, routing)

    @staticmethod
    def _spread(x: torch.Tensor, handle: Handle) -> torch.Tensor:
        """Dense rows to where their tokens have their places."""
        placed = torch.zeros((handle.round_object.sizes.max_rows, x.shape[1]), dtype=x.dtype, device=x.device)
        placed[handle.rows] = x[: len(handle.rows)]
        return placed

    def _sum_weights(self, topk_weights: torch.Tensor, handle: Handle) -> torch.Tensor:
        topk = handle.topk_idx.shape[1]
        sums = self._object(num_experts=handle.num_experts, topk=topk, hidden=topk, max_tokens=handle.max_tokens,
                            dispatch_dtype="bytes", token_bytes=1, row_dtype="f32", output_dtype="f32",
                            layout="token_major")
        nothing = torch.zeros((len(handle.topk_idx), 1), dtype=torch.uint8, device=topk_weights.device)
        routing, _ = sums.dispatch(nothing, handle.topk_idx, handle.topk_weights)
        return sums.combine(routing, self._spread(topk_weights.float(), handle))
