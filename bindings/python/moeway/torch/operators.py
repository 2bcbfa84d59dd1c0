"""The operators torch.ops.moeway.*: what they are to torch.compile (their shapes) and to autograd (their gradients).

Calls of one object must come in the same order on all ranks, and so must the operators: ranks run the same program.
"""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from moeway.torch.rounds import rounds_of

__all__ = ["combine", "dispatch"]


@torch.library.custom_op("moeway::dispatch", mutates_args=())
def dispatch(x: Tensor, topk_idx: Tensor, topk_weights: Optional[Tensor], scales: Optional[Tensor],
             number: int) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x, scales, num_rows, first_row, row_source and the routing of a dispatch by the object with this number."""
    made = rounds_of(number).dispatch(x, topk_idx, topk_weights, scales)
    return made[0], made[1], made[2], made[3], made[4], made[5]


@dispatch.register_fake
def _(x: Tensor, topk_idx: Tensor, topk_weights: Optional[Tensor], scales: Optional[Tensor],
      number: int) -> Tuple[Tensor, ...]:
    made = [x.new_empty(shape, dtype=dtype) for shape, dtype in rounds_of(number).shapes().values()]
    return (*made, torch.empty(2, dtype=torch.int64, device="cpu"))


@torch.library.custom_op("moeway::combine", mutates_args=())
def combine(rows: Tensor, topk_idx: Tensor, topk_weights: Optional[Tensor], row_source: Tensor, routing: Tensor,
            number: int) -> Tensor:
    """y [T, H] of a combine. topk_idx gives T; it and row_source are what backward needs."""
    return rounds_of(number).combine(rows, topk_idx.shape[0], topk_weights, routing)


@combine.register_fake
def _(rows: Tensor, topk_idx: Tensor, topk_weights: Optional[Tensor], row_source: Tensor, routing: Tensor,
      number: int) -> Tensor:
    rounds = rounds_of(number)
    return rows.new_empty((topk_idx.shape[0], rounds.config.hidden), dtype=rounds.output_dtype())


@torch.library.custom_op("moeway::dispatch_backward", mutates_args=())
def _dispatch_backward(grad_rows: Tensor, topk_idx: Tensor, routing: Tensor, number: int) -> Tensor:
    return rounds_of(number).dispatch_backward(grad_rows, topk_idx, routing)


@_dispatch_backward.register_fake
def _(grad_rows: Tensor, topk_idx: Tensor, routing: Tensor, number: int) -> Tensor:
    rounds = rounds_of(number)
    return grad_rows.new_empty((topk_idx.shape[0], rounds.config.hidden), dtype=rounds.output_dtype())


@torch.library.custom_op("moeway::combine_backward", mutates_args=())
def _combine_backward(grad_y: Tensor, rows: Tensor, topk_idx: Tensor, topk_weights: Tensor, row_source: Tensor,
                      routing: Tensor, with_weights: bool, number: int) -> Tuple[Tensor, Tensor]:
    return rounds_of(number).combine_backward(grad_y, rows, topk_idx, topk_weights, row_source, routing, with_weights)


@_combine_backward.register_fake
def _(grad_y: Tensor, rows: Tensor, topk_idx: Tensor, topk_weights: Tensor, row_source: Tensor, routing: Tensor,
      with_weights: bool, number: int) -> Tuple[Tensor, Tensor]:
    return torch.empty_like(rows), torch.empty_like(topk_weights) if with_weights else topk_weights.new_empty(0)


def _keep_dispatch(ctx: Any, inputs: Tuple[Any, ...], output: Tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(inputs[1], output[5])
    ctx.number = inputs[4]


def _backward_of_dispatch(ctx: Any, grad_rows: Optional[Tensor], *_: Any) -> Tuple[Optional[Tensor], ...]:
    topk_idx, routing = ctx.saved_tensors
    if grad_rows is None:
        return None, None, None, None, None
    return _dispatch_backward(grad_rows, topk_idx, routing, ctx.number), None, None, None, None


def _keep_combine(ctx: Any, inputs: Tuple[Any, ...], output: Tensor) -> None:
    rows, topk_idx, topk_weights, row_source, routing, ctx.number = inputs
    ctx.save_for_backward(rows, topk_idx, topk_weights, row_source, routing)


def _backward_of_combine(ctx: Any, grad_y: Tensor) -> Tuple[Optional[Tensor], ...]:
    rows, topk_idx, topk_weights, row_source, routing = ctx.saved_tensors
    with_weights = ctx.needs_input_grad[2]
    grad_rows, grad_weights = _combine_backward(grad_y, rows, topk_idx, topk_weights, row_source, routing, with_weights,
                                                ctx.number)
    return grad_rows, None, grad_weights if with_weights else None, None, None, None


dispatch.register_autograd(_backward_of_dispatch, setup_context=_keep_dispatch)
combine.register_autograd(_backward_of_combine, setup_context=_keep_combine)
