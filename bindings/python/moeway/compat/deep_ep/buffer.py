"""deep_ep.Buffer over moeway: its calls, with their arguments in their order. docs/compat.md says what differs."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, Union

import torch

from moeway.bootstrap import Bootstrap
from moeway.communicator import Communicator
from moeway.compat.deep_ep import low_latency, throughput
from moeway.compat.deep_ep.events import Config, EventHandle, EventOverlap
from moeway.config import AllToAllConfig, sizes_of
from moeway.enums import DeviceType
from moeway.errors import InvalidArgumentError
from moeway.torch.zeros import zeros

__all__ = ["Buffer"]

_Tensors = Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]
_HINT_TOPK = 8


def _refuse(**given: Any) -> None:
    """Raises NotImplementedError for arguments that are set and have nothing behind them here."""
    for name, (is_set, reason) in given.items():
        if is_set:
            raise NotImplementedError(f"{name}: {reason}")


def _finished(async_finish: bool, *tensors: Any) -> EventOverlap:
    return EventOverlap(EventHandle(), tensors) if async_finish else EventOverlap()


def _pad(tensor: torch.Tensor, num_rows: int, value: int) -> torch.Tensor:
    if len(tensor) > num_rows:
        raise InvalidArgumentError(f"num_worst_tokens is {num_rows}, but {len(tensor)} tokens have come")
    padded = zeros((num_rows, *tensor.shape[1:]), tensor.dtype, tensor.device)
    if value != 0:
        padded.fill_(value)
    padded[: len(tensor)].copy_(tensor)
    return padded


class Buffer:
    """Both modes of DeepEP's Buffer on one communicator: the ranks of a process group or of an mpi4py communicator.

    Memory is taken when a shape comes first, whatever sizes are given here; sizes, numbers of queue pairs and transport
    options are kept as attributes and ignored. `communicator` is moeway's own addition, in the place of a group.
    """

    num_sms: int = 20

    def __init__(self, group: Any = None, num_nvl_bytes: int = 0, num_rdma_bytes: int = 0,
                 low_latency_mode: bool = False, num_qps_per_rank: int = 24,
                 allow_nvlink_for_low_latency_mode: bool = True, allow_mnnvl: bool = False, use_fabric: bool = False,
                 explicitly_destroy: bool = False, enable_shrink: bool = False, comm: Any = None, *,
                 communicator: Optional[Communicator] = None) -> None:
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode, self.explicitly_destroy = low_latency_mode, explicitly_destroy
        self.enable_shrink = enable_shrink
        self._owns_communicator = communicator is None
        if communicator is None:
            if group is None and comm is None:
                raise ValueError("Either 'group' or 'comm' must be provided.")
            bootstrap = Bootstrap.process_group(group) if group is not None else Bootstrap.mpi(comm)
            communicator = Communicator(bootstrap, device="cuda" if torch.cuda.is_available() else "cpu")
        self.group = group if group is not None else comm
        self.rank, self.group_size = communicator.rank, communicator.size
        on_cpu = communicator.device_type == DeviceType.CPU
        self._device = torch.device("cpu") if on_cpu else torch.device("cuda", communicator.device_index)
        self._communicator = communicator
        self._low_latency = low_latency.LowLatency(communicator, self._device)
        self._throughput = throughput.Throughput(communicator, self._device)

    def destroy(self) -> None:
        """Closes everything."""
        self._low_latency.close()
        self._throughput.close()
        if self._owns_communicator:
            self._communicator.close()

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Kept in num_sms, and ignored."""
        Buffer.num_sms = new_num_sms

    @staticmethod
    def capture() -> EventOverlap:
        """An event of the current stream."""
        return EventOverlap(EventHandle())

    @staticmethod
    def get_low_latency_rdma_size_hint(num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int,
                                       num_experts: int) -> int:
        """Bytes of symmetric heap that a rank takes for this shape in bf16 with 8 experts a token."""
        config = AllToAllConfig(num_experts=num_experts, topk=min(_HINT_TOPK, num_experts), hidden=hidden,
                                max_tokens=num_max_dispatch_tokens_per_rank, weights="at_combine",
                                distinct_experts=True)
        return sizes_of(config, 0, num_ranks).heap_bytes

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """A Config, which is ignored."""
        return Config(Buffer.num_sms)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """A Config, which is ignored."""
        return Config(Buffer.num_sms)

    def get_comm_stream(self) -> Any:
        """The current stream: there is no other one."""
        return torch.cuda.current_stream(self._device)

    def get_local_buffer_tensor(self, dtype: torch.dtype, size: Optional[torch.Size] = None, offset: int = 0,
                                use_rdma_buffer: bool = False) -> torch.Tensor:
        """Not here: raises NotImplementedError."""
        raise NotImplementedError("get_local_buffer_tensor: moeway gives out no raw memory of its symmetric heap")

    def get_dispatch_layout(self, topk_idx: torch.Tensor, num_experts: int,
                            previous_event: Optional[EventOverlap] = None, async_finish: bool = False,
                            allocate_on_comm_stream: bool = False
                            ) -> Tuple[torch.Tensor, None, torch.Tensor, torch.Tensor, EventOverlap]:
        """Tokens per rank int32 [W], None, routes per expert int32 [E], whether a token goes to a rank bool [T, W]."""
        _wait(previous_event)
        per_rank, per_expert, in_rank = self._throughput.layout(topk_idx, num_experts)
        return per_rank, None, per_expert, in_rank, _finished(async_finish)

    def dispatch(self, x: _Tensors, handle: Optional[throughput.Handle] = None,
                 num_tokens_per_rank: Optional[torch.Tensor] = None,
                 num_tokens_per_rdma_rank: Optional[torch.Tensor] = None,
                 is_token_in_rank: Optional[torch.Tensor] = None, num_tokens_per_expert: Optional[torch.Tensor] = None,
                 topk_idx: Optional[torch.Tensor] = None, topk_weights: Optional[torch.Tensor] = None,
                 expert_alignment: int = 1, num_worst_tokens: int = 0, config: Optional[Config] = None,
                 previous_event: Optional[EventOverlap] = None, async_finish: bool = False,
                 allocate_on_comm_stream: bool = False
                 ) -> Tuple[_Tensors, Optional[torch.Tensor], Optional[torch.Tensor], Optional[List[int]],
                            Optional[throughput.Handle], EventOverlap]:
        """Received tokens [R, H] (with scales), local experts int64 [R, K], weights, counts per expert, handle, event.

        With a handle: other tokens along its routes; only the tokens come. num_worst_tokens: outputs of that many rows,
        no list of counts.
        """
        _wait(previous_event)
        elements, scales = x if isinstance(x, tuple) else (x, None)
        if handle is not None:
            if topk_idx is not None or topk_weights is not None:
                raise InvalidArgumentError("topk_idx and topk_weights are given beside a handle, expected None")
            again = self._throughput.dispatch_again(elements, scales, handle)
            tokens = again.x if again.scales is None else (again.x, again.scales)
            return tokens, None, None, None, None, _finished(async_finish, x)
        if topk_idx is None:
            raise NotImplementedError("topk_idx: moeway dispatches along experts; is_token_in_rank alone is not enough")
        if num_tokens_per_expert is None:
            raise InvalidArgumentError("num_tokens_per_expert is None, expected get_dispatch_layout's")
        received, made = self._throughput.dispatch(elements, scales, topk_idx, topk_weights, len(num_tokens_per_expert))
        counts = [] if num_worst_tokens else received.aligned_counts(expert_alignment)
        if num_worst_tokens:
            received.x = _pad(received.x, num_worst_tokens, 0)
            received.scales = None if received.scales is None else _pad(received.scales, num_worst_tokens, 0)
            received.topk_idx = _pad(received.topk_idx, num_worst_tokens, -1)
            received.topk_weights = _pad(received.topk_weights, num_worst_tokens, 0)
        tokens = received.x if received.scales is None else (received.x, received.scales)
        weights = None if topk_weights is None else received.topk_weights
        return tokens, received.topk_idx, weights, counts, made, _finished(async_finish, x, topk_idx, topk_weights)

    def combine(self, x: torch.Tensor, handle: throughput.Handle, topk_weights: Optional[torch.Tensor] = None,
                bias: Union[torch.Tensor, Tuple[torch.Tensor, ...], None] = None, config: Optional[Config] = None,
                previous_event: Optional[EventOverlap] = None, async_finish: bool = False,
                allocate_on_comm_stream: bool = False) -> Tuple[torch.Tensor, Optional[torch.Tensor], EventOverlap]:
        """Sums of the ranks' rows, without weights: [T, H], the sums of topk_weights [T, K] or None, an event."""
        _wait(previous_event)
        y, weights = self._throughput.combine(x, handle, bias, topk_weights)
        return y, weights, _finished(async_finish, x, topk_weights, bias)

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Nothing to do: moeway's memory needs no cleaning."""

    def low_latency_dispatch(self, x: torch.Tensor, topk_idx: torch.Tensor, num_max_dispatch_tokens_per_rank: int,
                             num_experts: int, cumulative_local_expert_recv_stats: Optional[torch.Tensor] = None,
                             dispatch_wait_recv_cost_stats: Optional[torch.Tensor] = None, use_fp8: bool = True,
                             round_scale: bool = False, use_ue8m0: bool = False, async_finish: bool = False,
                             return_recv_hook: bool = False
                             ) -> Tuple[_Tensors, torch.Tensor, low_latency.Handle, EventOverlap,
                                        Optional[Callable[[], None]]]:
        """Each local expert's rows [L, W * M, H] (and scales, column-major), counts int32 [L], handle, event, hook."""
        _refuse(dispatch_wait_recv_cost_stats=(dispatch_wait_recv_cost_stats is not None, "moeway does not time waits"))
        rows, counts, handle, receive = self._low_latency.dispatch(
            x, topk_idx, num_max_dispatch_tokens_per_rank, num_experts, cumulative_local_expert_recv_stats, use_fp8,
            round_scale, use_ue8m0)
        if not return_recv_hook:
            receive()
        return rows, counts, handle, _finished(async_finish, x, topk_idx), receive if return_recv_hook else None

    def low_latency_combine(self, x: torch.Tensor, topk_idx: torch.Tensor, topk_weights: torch.Tensor,
                            handle: low_latency.Handle, use_logfmt: bool = False, zero_copy: bool = False,
                            async_finish: bool = False, return_recv_hook: bool = False,
                            out: Optional[torch.Tensor] = None,
                            combine_wait_recv_cost_stats: Optional[torch.Tensor] = None
                            ) -> Tuple[torch.Tensor, EventOverlap, Optional[Callable[[], None]]]:
        """Weighted sums of the tokens' rows, bf16 [T, H] (`out` if given), an event, a hook."""
        _refuse(use_logfmt=(use_logfmt, "moeway's combine moves bf16, f16 and f32 only"),
                combine_wait_recv_cost_stats=(combine_wait_recv_cost_stats is not None, "moeway does not time waits"))
        y, receive = self._low_latency.combine(x, topk_idx, topk_weights, handle, zero_copy, out)
        if not return_recv_hook:
            receive()
        return y, _finished(async_finish, x, topk_weights), receive if return_recv_hook else None

    def get_next_low_latency_combine_buffer(self, handle: low_latency.Handle) -> torch.Tensor:
        """bf16 [L, W * M, H], whose rows low_latency_combine takes with zero_copy: an ordinary tensor."""
        return self._low_latency.rows_of(handle)

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Raises NotImplementedError for mask=True; unmasking a rank does nothing, as none is masked."""
        _refuse(mask=(mask, "moeway has no rounds without some of the ranks: a lost rank ends the object's use"))

    def low_latency_query_mask_buffer(self, mask_status: torch.Tensor) -> None:
        """Fills int32 [W] with zeros: no rank is masked."""
        mask_status.zero_()

    def low_latency_clean_mask_buffer(self) -> None:
        """Nothing to do: no rank is masked."""


def _wait(event: Optional[EventOverlap]) -> None:
    if event is not None:
        event.current_stream_wait()
