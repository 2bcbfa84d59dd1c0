"""What the operators of moeway.torch do when they run: rounds of the objects behind them, forward and backward.

The gradient of combine is a dispatch of y's gradient along the same routes, times each row's weight, and that of dispatch
an unweighted combine of its rows' gradients; as a combine's backward comes before that of its dispatch, both are halves
of one more round. Gradients of weights are dot products on the experts' side; they go home in a round of a small object
of their own, in float32, which takes the weights there where they come with combine.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Dict, Optional, Tuple

import torch

from moeway.all_to_all import AllToAll, DispatchOutput, Routing
from moeway.communicator import Communicator
from moeway.config import AllToAllConfig
from moeway.enums import DType, Layout, Scales, Weights
from moeway.errors import InvalidArgumentError, WrongStateError
from moeway.torch.zeros import zeros

__all__ = ["Rounds", "rounds_of"]

_DTYPES = {
    DType.BF16: torch.bfloat16, DType.F16: torch.float16, DType.F32: torch.float32, DType.F8_E4M3: torch.float8_e4m3fn,
    DType.BYTES: torch.uint8,
}
_SCALES = {Scales.F32: torch.float32, Scales.UE8M0: torch.uint8, Scales.BYTES: torch.uint8}

# Operators know their object by a number.
_numbers = itertools.count(1)
_known: "weakref.WeakValueDictionary[int, Rounds]" = weakref.WeakValueDictionary()


def rounds_of(number: int) -> "Rounds":
    """The object with this number. Raises WrongStateError if it is gone."""
    rounds = _known.get(int(number))
    if rounds is None:
        raise WrongStateError(f"the moeway.torch.AllToAll with number {number} no longer exists")
    return rounds


def _check(config: AllToAllConfig, differentiable: bool) -> None:
    if config.layout == Layout.TOKEN_MAJOR:
        raise InvalidArgumentError(
            "layout is token_major, expected expert_padded or expert_packed: use moeway.AllToAll for token_major")
    differs = config.dispatch_dtype != config.output_dtype or config.scales != Scales.NONE
    if differentiable and differs:
        raise InvalidArgumentError(
            "gradients travel as the values do, so that dispatch_dtype must be output_dtype, without scales; they are "
            f"{config.dispatch_dtype.name.lower()} and {config.output_dtype.name.lower()} with scales "
            f"{config.scales.name.lower()}: give differentiable=False")


class Rounds:
    """One AllToAll with what its backward needs. Creation is collective."""

    def __init__(self, communicator: Communicator, config: AllToAllConfig, differentiable: bool) -> None:
        _check(config, differentiable)
        self.config = config
        self.values = AllToAll(communicator, config)
        self.sizes = self.values.sizes
        self.weights = AllToAll(communicator, AllToAllConfig(
            num_experts=config.num_experts, topk=config.topk, hidden=config.topk, max_tokens=config.max_tokens,
            dispatch_dtype=DType.F32, row_dtype=DType.F32, output_dtype=DType.F32, layout=config.layout,
            alignment=config.alignment, distinct_experts=config.distinct_experts, execution=config.execution,
            replicas=config.replicas, num_warps=config.num_warps, timeout_ms=config.timeout_ms)) if differentiable else None
        # The round that the latest combine's backward has begun: of which forward dispatch, and its own routing.
        self._begun: Optional[Tuple[int, Routing]] = None
        self.number = next(_numbers)
        _known[self.number] = self

    def close(self) -> None:
        """Closes the objects."""
        self.values.close()
        if self.weights is not None:
            self.weights.close()

    @property
    def leading(self) -> Tuple[int, ...]:
        """The shape of the rows without their last dimension."""
        if self.config.layout == Layout.EXPERT_PADDED:
            return self.sizes.num_local_experts, self.sizes.expert_capacity
        return (self.sizes.max_rows,)

    def shapes(self) -> Dict[str, Tuple[Tuple[int, ...], torch.dtype]]:
        """Shape and type of everything that dispatch gives but the routing."""
        config, num_local = self.config, self.sizes.num_local_experts
        columns = config.token_bytes if config.dispatch_dtype == DType.BYTES else config.hidden
        has_scales = config.scales != Scales.NONE
        return {
            "x": ((*self.leading, columns), _DTYPES[config.dispatch_dtype]),
            "scales": ((*self.leading, self.sizes.num_scales) if has_scales else (0,),
                       _SCALES.get(config.scales, torch.uint8)),
            "num_rows": ((num_local,), torch.int32),
            "first_row": ((num_local,), torch.int64),
            "row_source": ((*self.leading, 3), torch.int32),
        }

    def output_dtype(self) -> torch.dtype:
        """Of y."""
        return _DTYPES[self.config.output_dtype]

    def row_dtype(self) -> torch.dtype:
        """Of the rows given to combine."""
        return _DTYPES[self.config.row_dtype]

    def dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: Optional[torch.Tensor],
                 scales: Optional[torch.Tensor]) -> Tuple[torch.Tensor, ...]:
        """x, scales, num_rows, first_row, row_source of a dispatch, and its routing as int64 [2] on the host.

        What is no row is zero, so that a product with it is no NaN, and has a row_source of -1.
        """
        made = {name: zeros(shape, dtype, x.device) for name, (shape, dtype) in self.shapes().items()}
        made["row_source"].fill_(-1)
        output = DispatchOutput(**{**made, "scales": made["scales"] if self.config.scales != Scales.NONE else None})
        at_dispatch = self.config.weights == Weights.AT_DISPATCH
        routing, _ = self.values.dispatch(x, topk_idx, topk_weights if at_dispatch else None, scales, output)
        return (*made.values(), torch.tensor([routing.object, routing.dispatch]))

    def combine(self, rows: torch.Tensor, num_tokens: int, topk_weights: Optional[torch.Tensor],
                routing: torch.Tensor) -> torch.Tensor:
        """y [T, H]."""
        at_combine = self.config.weights == Weights.AT_COMBINE
        kept = Routing(int(routing[0]), int(routing[1]), num_tokens, "torch")
        return self.values.combine(kept, rows.contiguous(), topk_weights if at_combine else None)

    def combine_backward(self, grad_y: torch.Tensor, rows: torch.Tensor, topk_idx: torch.Tensor,
                         topk_weights: torch.Tensor, row_source: torch.Tensor, routing: torch.Tensor,
                         with_weights: bool) -> Tuple[torch.Tensor, torch.Tensor]:
        """Gradients of the rows and, if asked for, of the weights [T, K], else an empty one."""
        grad_y_rows, weight = self._begin_backward(grad_y, topk_idx, topk_weights, int(routing[1]))
        k = row_source[..., 2:].clamp(min=0).long()
        at_combine = self.config.weights == Weights.AT_COMBINE
        if with_weights or at_combine:
            assert self.weights is not None
            weight_rows = torch.zeros((*self.leading, self.config.topk), dtype=torch.float32, device=rows.device)
            weights_routing, _ = self.weights.dispatch(topk_weights, topk_idx, topk_weights, None,
                                                       self._scratch(weight_rows))
            if at_combine:
                weight = weight_rows.gather(-1, k)
        grad_rows = (grad_y_rows.float() * weight).to(rows.dtype)
        if not with_weights:
            return grad_rows, topk_weights.new_empty(0)
        dots = (grad_y_rows.float() * rows.float()).sum(-1, keepdim=True)
        dots = torch.where(row_source[..., 2:] >= 0, dots, 0.0)
        back = torch.zeros_like(weight_rows).scatter_(-1, k, dots)
        return grad_rows, self.weights.combine(weights_routing.unweighted(), back)

    def dispatch_backward(self, grad_rows: torch.Tensor, topk_idx: torch.Tensor,
                          routing: torch.Tensor) -> torch.Tensor:
        """The gradient of x [T, H]: the sum of its rows' gradients."""
        dispatched = int(routing[1])
        if self._begun is None or self._begun[0] != dispatched:
            # No combine's backward has come before: a round whose dispatch carries zeros.
            zeros = torch.zeros((len(topk_idx), self.config.hidden), dtype=self.output_dtype(), device=grad_rows.device)
            weights = torch.zeros(tuple(topk_idx.shape), dtype=torch.float32, device=grad_rows.device)
            self._begin_backward(zeros, topk_idx, weights, dispatched)
        assert self._begun is not None
        (_, begun), self._begun = self._begun, None
        return self.values.combine(begun.unweighted(), grad_rows.to(self.row_dtype()).contiguous())

    def _begin_backward(self, grad_y: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                        dispatched: int) -> Tuple[torch.Tensor, torch.Tensor]:
        """Rows of y's gradient, and with weights at dispatch the weight of each, [..., 1]; zeros where there is no row."""
        rows = torch.zeros((*self.leading, self.config.hidden), dtype=self.output_dtype(), device=grad_y.device)
        weight = torch.zeros((*self.leading, 1), dtype=torch.float32, device=grad_y.device)
        output = self._scratch(rows)
        at_dispatch = self.config.weights == Weights.AT_DISPATCH
        if at_dispatch:
            output.row_weight = weight
        routing, _ = self.values.dispatch(grad_y, topk_idx, topk_weights if at_dispatch else None, None, output)
        self._begun = dispatched, routing
        return rows, weight

    def _scratch(self, rows: torch.Tensor) -> DispatchOutput:
        counts: Any = torch.empty(self.sizes.num_local_experts, dtype=torch.int32, device=rows.device)
        return DispatchOutput(x=rows, num_rows=counts)
