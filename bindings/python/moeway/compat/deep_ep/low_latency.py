"""DeepEP's low-latency mode: padded rows of each expert, weights with combine, halves of a call as hooks."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

import torch

from moeway.all_to_all import AllToAll, DispatchOutput, Routing
from moeway.communicator import Communicator
from moeway.errors import InvalidArgumentError

__all__ = ["Handle", "LowLatency"]

_BLOCK = 128  # Elements that share a scale.
_PACKED = 4  # UE8M0 scales in an int32
_Key = Tuple[int, int, int, int, Tuple[str, str, str]]


def _form_of(hidden: int, use_fp8: bool, round_scale: bool, use_ue8m0: bool) -> Tuple[str, str, str]:
    """What dispatch moves: its type, its scales, and how it makes them of bf16."""
    if not use_fp8:
        return "bf16", "none", "none"
    if use_ue8m0 and not round_scale:
        raise InvalidArgumentError("use_ue8m0 is set without round_scale: UE8M0 holds powers of two only")
    block = _BLOCK * (_PACKED if use_ue8m0 else 1)
    if hidden % block != 0:
        with_what = "use_ue8m0" if use_ue8m0 else "fp8"
        raise InvalidArgumentError(f"hidden is {hidden}, expected a multiple of {block} with {with_what}")
    return "f8_e4m3", "ue8m0" if use_ue8m0 else "f32", "power_of_two" if round_scale else "largest"


class Handle(Tuple[Any, ...]):
    """(source token of each row [L, W * M], where each source's rows lie [L, W], M, H, E), and the round behind it."""

    round_object: AllToAll
    routing: Routing
    combined: bool



class LowLatency:
    """The rounds of a Buffer in this mode. An AllToAll is made, collectively, when a shape comes first."""

    def __init__(self, communicator: Communicator, device: torch.device) -> None:
        self._communicator, self._device = communicator, device
        self._objects: Dict[_Key, AllToAll] = {}
        self._rows: Dict[int, torch.Tensor] = {}

    def close(self) -> None:
        """Closes all objects."""
        for made in self._objects.values():
            made.close()

    def dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor, max_tokens: int, num_experts: int,
                 stats: Optional[torch.Tensor], use_fp8: bool, round_scale: bool,
                 use_ue8m0: bool) -> Tuple[Any, torch.Tensor, Handle, Callable[[], None]]:
        """Sends; gives rows (with scales), counts, handle, and what receives them."""
        if x.dtype != torch.bfloat16:
            raise InvalidArgumentError(f"x is {x.dtype}, expected torch.bfloat16")
        form = _form_of(x.shape[1], use_fp8, round_scale, use_ue8m0)
        made = self._object((max_tokens, x.shape[1], num_experts, topk_idx.shape[1], form))
        routing = made.dispatch_send(x, topk_idx)
        output = made.allocate_output("torch", first_row=False)
        packed_scales = None
        if use_fp8:
            num_local, capacity, num_scales = output.scales.shape
            shape = (num_local, num_scales // _PACKED if use_ue8m0 else num_scales, capacity)
            packed_scales = torch.empty(shape, dtype=torch.int32 if use_ue8m0 else torch.float32,
                                        device=x.device).transpose(1, 2)
        size = self._communicator.size
        handle = Handle((torch.empty(output.row_source.shape[:2], dtype=torch.int32, device=x.device),
                         torch.empty((output.row_source.shape[0], size), dtype=torch.int64, device=x.device),
                         max_tokens, x.shape[1], num_experts))
        handle.round_object, handle.routing, handle.combined = made, routing, False

        def receive() -> None:
            made.dispatch_recv(routing, output)
            self._describe(output, handle)
            if packed_scales is not None:
                raw = output.scales.view(torch.uint8).view(torch.int32) if use_ue8m0 else output.scales
                packed_scales.copy_(raw)
            if stats is not None:
                stats.add_(output.num_rows)

        return (output.x, packed_scales) if use_fp8 else output.x, output.num_rows, handle, receive

    def combine(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor, handle: Handle,
                zero_copy: bool, out: Optional[torch.Tensor]) -> Tuple[torch.Tensor, Callable[[], None]]:
        """Sends the rows back; gives the sums' tensor and what receives them."""
        made, rows = handle.round_object, self.rows_of(handle) if zero_copy else x
        if rows.dtype != torch.bfloat16:
            raise InvalidArgumentError(f"x is {rows.dtype}, expected torch.bfloat16")
        if handle.combined:  # The original allows a second combine: it gets a round of its own.
            handle.routing = self._dispatch_again(made, topk_idx)
        routing, handle.combined = handle.routing, True
        made.combine_send(routing, rows.contiguous())
        y = torch.empty((len(topk_idx), handle[3]), dtype=torch.bfloat16, device=rows.device) if out is None else out

        def receive() -> None:
            made.combine_recv(routing, topk_weights.float(), y)

        return y, receive

    def rows_of(self, handle: Handle) -> torch.Tensor:
        """bf16 [L, W * M, H] for combine's rows; the same at each call with handles of one shape."""
        made = handle.round_object
        if id(made) not in self._rows:
            shape = (made.sizes.num_local_experts, made.sizes.expert_capacity, made.config.hidden)
            self._rows[id(made)] = torch.zeros(shape, dtype=torch.bfloat16, device=self._device)
        return self._rows[id(made)]

    def _object(self, key: _Key) -> AllToAll:
        if key not in self._objects:
            max_tokens, hidden, num_experts, topk, (dtype, scales, quantise) = key
            self._objects[key] = AllToAll(
                self._communicator, num_experts=num_experts, topk=topk, hidden=hidden, max_tokens=max_tokens,
                dispatch_dtype=dtype, scales=scales, quantise=quantise, layout="expert_padded", weights="at_combine",
                distinct_experts=True)
        return self._objects[key]

    def _describe(self, output: DispatchOutput, handle: Handle) -> None:
        source = output.row_source
        capacity, size = source.shape[1], self._communicator.size
        is_row = torch.arange(capacity, device=source.device) < output.num_rows[:, None]
        ranks = torch.where(is_row, source[..., 0], size).long()
        counts = torch.zeros((source.shape[0], size + 1), dtype=torch.int64, device=source.device)
        counts.scatter_add_(1, ranks, torch.ones_like(ranks))
        counts = counts[:, :size]
        first = counts.cumsum(1) - counts
        handle[0].copy_(source[..., 1])
        handle[1].copy_(first << 32 | counts)

    @staticmethod
    def _dispatch_again(made: AllToAll, topk_idx: torch.Tensor) -> Routing:
        scratch = made.allocate_output("torch", first_row=False, row_source=False)
        x = torch.zeros((len(topk_idx), made.config.hidden), dtype=torch.bfloat16, device=topk_idx.device)
        return made.dispatch(x, topk_idx, output=scratch)[0]
