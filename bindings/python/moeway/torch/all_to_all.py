"""AllToAll for torch: dispatch and combine with gradients."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NamedTuple, Optional, Type

import torch

from moeway.communicator import Communicator
from moeway.config import AllToAllConfig, AllToAllSizes
from moeway.torch import operators
from moeway.torch.rounds import Rounds

__all__ = ["AllToAll", "Dispatched"]


class Dispatched(NamedTuple):
    """What a dispatch has brought. The leading dimensions [...] are [L, capacity] (expert_padded) or [max_rows]
    (expert_packed), the same in every call."""

    x: torch.Tensor  # [..., H] dispatch_dtype; zero where there is no row
    scales: torch.Tensor  # [..., num_scales]; empty without scales
    num_rows: torch.Tensor  # int32 [L]: rows of each local expert
    first_row: torch.Tensor  # int64 [L]: first row of each local expert in x taken as [rows, H]
    row_source: torch.Tensor  # int32 [..., 3]: source rank, token, k of each row; -1 where there is none
    topk_idx: torch.Tensor  # as given
    topk_weights: torch.Tensor  # as given; its gradient comes from combine
    routing: torch.Tensor  # int64 [2] on the host: which dispatch it was


class AllToAll:
    """Dispatch and combine of one shape for torch. Creation is collective; a context manager closes it.

    Keyword arguments are the fields of moeway.AllToAllConfig; the layout is expert_padded or expert_packed.
    `differentiable` (default): gradients flow to x and topk_weights, for which dispatch_dtype must be output_dtype, and
    a second, small object takes weights along. Outputs are new tensors at each call. Ranks must run the same program:
    the same calls in the same order, backward included. Use by one thread at a time.
    """

    def __init__(self, communicator: Communicator, config: Optional[AllToAllConfig] = None, *,
                 differentiable: bool = True, **fields: Any) -> None:
        self._rounds = Rounds(communicator, AllToAllConfig(**fields) if config is None else config, differentiable)
        self._number = self._rounds.number

    @property
    def config(self) -> AllToAllConfig:
        """What it was created with."""
        return self._rounds.config

    @property
    def sizes(self) -> AllToAllSizes:
        """What this rank has of it."""
        return self._rounds.sizes

    def dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                 scales: Optional[torch.Tensor] = None) -> Dispatched:
        """Takes x[t] to the ranks that own its experts. Collective.

        x [T, H] dispatch_dtype, topk_idx [T, K] int32 or int64 with -1 for no route, topk_weights [T, K] float32 (for
        weights at combine too: combine uses them). Raises moeway.MoewayError.
        """
        made = operators.dispatch(x, topk_idx, topk_weights.detach(), scales, self._number)
        return Dispatched(made[0], made[1], made[2], made[3], made[4], topk_idx, topk_weights, made[5])

    def combine(self, rows: torch.Tensor, dispatched: Dispatched) -> torch.Tensor:
        """y [T, H] output_dtype: the weighted sum of each token's rows. Collective.

        rows: the experts' outputs, of the shape of dispatched.x with H elements of row_dtype; what stands where there
        is no row does not matter. One combine a dispatch. Raises moeway.MoewayError.
        """
        return operators.combine(rows, dispatched.topk_idx, dispatched.topk_weights, dispatched.row_source,
                                 dispatched.routing, self._number)

    def status(self) -> None:
        """Raises the failure that ended the object's use, if there is one."""
        self._rounds.values.status()

    def close(self) -> None:
        """Releases all memory. Not collective; never waits for a peer."""
        self._rounds.close()

    def __enter__(self) -> "AllToAll":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()
