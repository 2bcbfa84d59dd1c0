"""pplx_kernels.AllToAll over moeway.

Payload and scales travel as bytes; weights come with combine. Of what the original leaves open until a call, the types
of combine's rows and results matter to moeway at creation: the first round takes float32 for both, which holds whatever
comes exactly, and later rounds use the types that the first combine was given. `out_dtype` says them at once.

The dp_size ranks with the same tokens are moeway's replicas: each sends its share of the tokens, and all get all results.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

import torch

from moeway import all_to_all as plain
from moeway.bootstrap import Bootstrap
from moeway.communicator import Communicator
from moeway.compat.pplx_kernels.nvshmem import initialised_communicator
from moeway.errors import InvalidArgumentError, WrongStateError

__all__ = ["AllToAll"]

_Types = Tuple[torch.dtype, torch.dtype]  # of rows and of results
_ANY: _Types = (torch.float32, torch.float32)


class _Shape(NamedTuple):
    """What both ways to make an AllToAll are given."""

    max_num_tokens: int
    num_experts: int
    experts_per_token: int
    rank: int
    world_size: int
    dp_size: int
    hidden_dim: int
    hidden_dim_bytes: int
    hidden_dim_scale_bytes: int


def _as_bytes(tensor: torch.Tensor, width: int, name: str) -> torch.Tensor:
    """Rows as uint8 [..., width]; the original rounds rows up, so narrower ones get zeros behind them."""
    raw = tensor.contiguous().view(torch.uint8)
    if raw.shape[-1] > width:
        raise InvalidArgumentError(f"rows of {name} have {raw.shape[-1]} bytes, expected at most {width}")
    return raw if raw.shape[-1] == width else torch.nn.functional.pad(raw, (0, width - raw.shape[-1]))


def _fitting(tensor: torch.Tensor, rows: int, width: int) -> torch.Tensor:
    """`tensor` [L, capacity, n] as bytes [L, rows, width], to be written: itself, or another if it has other sizes."""
    if tensor.is_contiguous() and tensor.shape[1] >= rows and tensor.shape[2] * tensor.element_size() == width:
        return tensor.view(torch.uint8)
    return torch.zeros((tensor.shape[0], rows, width), dtype=torch.uint8, device=tensor.device)


def _copy_back(received: torch.Tensor, tensor: torch.Tensor) -> None:
    if received.data_ptr() != tensor.data_ptr():
        capacity, width = tensor.shape[1], tensor.shape[2] * tensor.element_size()
        tensor.copy_(received[:, :capacity, :width].contiguous().view(tensor.dtype))


def _signed(indices: torch.Tensor) -> torch.Tensor:
    return indices.view(torch.int32) if indices.dtype == torch.uint32 else indices


class AllToAll:
    """Made by `intranode` or `internode`, which are collective. Tensors lie on the communicator's device."""

    def __init__(self, communicator: Communicator, owns_communicator: bool, shape: _Shape,
                 out_dtype: Optional[torch.dtype]) -> None:
        if (shape.rank, shape.world_size) != (communicator.rank, communicator.size):
            raise InvalidArgumentError(f"rank and world_size are {shape.rank} and {shape.world_size}, the group has "
                                       f"{communicator.rank} and {communicator.size}")
        if shape.world_size % shape.dp_size != 0:
            raise InvalidArgumentError(f"dp_size is {shape.dp_size}, expected a divisor of world_size = "
                                       f"{shape.world_size}")
        self._communicator, self._owns_communicator = communicator, owns_communicator
        self._shape = shape
        self._objects: Dict[_Types, plain.AllToAll] = {}
        self._types: _Types = _ANY if out_dtype is None else (out_dtype, out_dtype)
        self._object(self._types)
        self._dispatched: Optional[Tuple[plain.AllToAll, plain.Routing]] = None
        self._combining: Optional[Tuple[plain.AllToAll, plain.Routing]] = None

    @classmethod
    def intranode(cls, max_num_tokens: int, num_experts: int, experts_per_token: int, rank: int, world_size: int,
                  dp_size: int, hidden_dim: int, hidden_dim_bytes: int, hidden_dim_scale_bytes: int,
                  group_name: str = "default", *, communicator: Optional[Communicator] = None,
                  out_dtype: Optional[torch.dtype] = None) -> "AllToAll":
        """Between the ranks of a torch.distributed group, or of `communicator`, which is moeway's own addition."""
        owned = communicator is None
        if communicator is None:
            from torch.distributed import distributed_c10d

            group = None if group_name == "default" else distributed_c10d._resolve_process_group(group_name)
            device = "cuda" if torch.cuda.is_available() else "cpu"
            communicator = Communicator(Bootstrap.process_group(group), device=device)
        shape = _Shape(max_num_tokens, num_experts, experts_per_token, rank, world_size, dp_size, hidden_dim,
                       hidden_dim_bytes, hidden_dim_scale_bytes)
        return cls(communicator, owned, shape, out_dtype)

    @classmethod
    def internode(cls, max_num_tokens: int, num_experts: int, experts_per_token: int, rank: int, world_size: int,
                  dp_size: int, hidden_dim: int, hidden_dim_bytes: int, hidden_dim_scale_bytes: int, *,
                  out_dtype: Optional[torch.dtype] = None) -> "AllToAll":
        """Between the ranks that nvshmem_init has brought together."""
        shape = _Shape(max_num_tokens, num_experts, experts_per_token, rank, world_size, dp_size, hidden_dim,
                       hidden_dim_bytes, hidden_dim_scale_bytes)
        return cls(initialised_communicator(), False, shape, out_dtype)

    def dispatch(self, out_expert_num_tokens: torch.Tensor, out_expert_x: torch.Tensor,
                 out_expert_x_scale: Optional[torch.Tensor], dp_x: torch.Tensor, dp_x_scale: Optional[torch.Tensor],
                 indices: torch.Tensor, bound_m: Optional[torch.Tensor], do_send: bool = True,
                 do_recv: bool = True) -> None:
        """Tokens to experts: out_expert_x [L, max_num_tokens * world_size / dp_size, hidden], counts int32 [L].

        dp_x [m, hidden], indices [m, experts_per_token] uint32, int32 or int64, bound_m: how many of the tokens count.
        """
        scale_bytes = self._shape.hidden_dim_scale_bytes
        if {dp_x_scale is None, out_expert_x_scale is None} != {scale_bytes == 0}:
            expected = "both" if scale_bytes else "neither"
            raise InvalidArgumentError(f"hidden_dim_scale_bytes was {scale_bytes}: expected {expected} of dp_x_scale "
                                       "and out_expert_x_scale")
        if do_send:
            self._send_tokens(dp_x, dp_x_scale, indices, bound_m)
        if do_recv:
            self._receive_rows(out_expert_num_tokens, out_expert_x, out_expert_x_scale)

    def combine(self, out_tokens: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor, expert_y: torch.Tensor,
                bound_m: Optional[torch.Tensor], do_send: bool = True, do_recv: bool = True) -> None:
        """Experts' rows back: out_tokens [>= m, hidden] gets the weighted sums in its first m rows.

        expert_y has the shape of out_expert_x; weights [m, experts_per_token] float32. Tokens behind bound_m get zeros.
        """
        if do_send:
            self._send_rows(expert_y, out_tokens.dtype)
        if do_recv:
            self._receive_sums(out_tokens, len(indices), weights)
            self._types = expert_y.dtype, out_tokens.dtype

    def destroy(self) -> None:
        """Closes everything; a second call does nothing."""
        for made in self._objects.values():
            made.close()
        if self._owns_communicator:
            self._communicator.close()
        self._objects = {}

    # torch.compile leaves these four out of its graph.

    @torch.compiler.disable
    def _send_tokens(self, dp_x: torch.Tensor, dp_x_scale: Optional[torch.Tensor], indices: torch.Tensor,
                     bound_m: Optional[torch.Tensor]) -> None:
        num_tokens = len(indices)
        idx = self._bounded(_signed(indices), bound_m)
        x = _as_bytes(dp_x[:num_tokens], self._shape.hidden_dim_bytes, "dp_x")
        scales = None
        if dp_x_scale is not None:
            scales = _as_bytes(dp_x_scale[:num_tokens], self._shape.hidden_dim_scale_bytes, "dp_x_scale")
        round_object = self._object(self._types)
        self._dispatched = round_object, round_object.dispatch_send(x, idx, None, scales)

    @torch.compiler.disable
    def _receive_rows(self, counts: torch.Tensor, out_x: torch.Tensor, out_scales: Optional[torch.Tensor]) -> None:
        round_object, routing = self._current(self._dispatched, "dispatch")
        capacity = round_object.sizes.expert_capacity
        output = plain.DispatchOutput(x=_fitting(out_x, capacity, self._shape.hidden_dim_bytes), num_rows=counts)
        if out_scales is not None:
            output.scales = _fitting(out_scales, capacity, self._shape.hidden_dim_scale_bytes)
        round_object.dispatch_recv(routing, output)
        _copy_back(output.x, out_x)
        if out_scales is not None:
            _copy_back(output.scales, out_scales)

    @torch.compiler.disable
    def _send_rows(self, expert_y: torch.Tensor, out_dtype: torch.dtype) -> None:
        round_object, routing = self._current(self._dispatched, "combine")
        round_object.combine_send(routing, self._rows(round_object, expert_y, out_dtype))
        self._combining, self._dispatched = (round_object, routing), None

    @torch.compiler.disable
    def _receive_sums(self, out_tokens: torch.Tensor, num_tokens: int, weights: torch.Tensor) -> None:
        round_object, routing = self._current(self._combining, "combine with do_send")
        self._combining = None
        out_tokens[:num_tokens].copy_(round_object.combine_recv(routing, weights[:num_tokens].float()))

    def _object(self, types: _Types) -> plain.AllToAll:
        if types not in self._objects:
            shape = self._shape
            self._objects[types] = plain.AllToAll(
                self._communicator, num_experts=shape.num_experts, topk=shape.experts_per_token,
                hidden=shape.hidden_dim, max_tokens=shape.max_num_tokens, dispatch_dtype="bytes",
                token_bytes=shape.hidden_dim_bytes, scales="bytes" if shape.hidden_dim_scale_bytes else "none",
                scale_bytes=shape.hidden_dim_scale_bytes, row_dtype=types[0], output_dtype=types[1],
                layout="expert_padded", weights="at_combine", distinct_experts=True, replicas=shape.dp_size)
        return self._objects[types]

    def _bounded(self, indices: torch.Tensor, bound_m: Optional[torch.Tensor]) -> torch.Tensor:
        if bound_m is None:
            return indices
        counts = torch.arange(len(indices), device=indices.device)[:, None] < _signed(bound_m).to(indices.device)
        return torch.where(counts, indices, -1)

    def _rows(self, round_object: plain.AllToAll, expert_y: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        chosen = self._types if self._types != _ANY else (expert_y.dtype, out_dtype)
        if chosen != (expert_y.dtype, out_dtype):
            raise InvalidArgumentError(f"expert_y and out_tokens are {expert_y.dtype} and {out_dtype}, expected "
                                       f"{chosen[0]} and {chosen[1]} as out_dtype or the first combine said")
        rows = expert_y if round_object is not self._objects.get(_ANY) else expert_y.float()
        capacity = round_object.sizes.expert_capacity
        if rows.shape[1] < capacity:
            rows = torch.nn.functional.pad(rows, (0, 0, 0, capacity - rows.shape[1]))
        return rows.contiguous()

    @staticmethod
    def _current(round_of: Optional[Tuple[plain.AllToAll, plain.Routing]],
                 after: str) -> Tuple[plain.AllToAll, plain.Routing]:
        if round_of is None:
            raise WrongStateError(f"{after} came before the call that begins the round")
        return round_of
