"""Dispatch and combine of one shape.

Contracts (shapes, failure, when memory may be reused) are those of the C functions of the same names in c_api.h. Every
call raises the MoewayError of its failure. On CPU ranks a call has read its inputs and written its outputs when it
returns; on CUDA ranks it is enqueued on a stream, and what kernels find wrong is raised by a later call or by status().
"""

from __future__ import annotations

import ctypes
import dataclasses
from ctypes import c_void_p
from types import TracebackType
from typing import Any, List, NamedTuple, Optional, Tuple, Type

from moeway import _arrays
from moeway._arguments import Argument
from moeway._library import call, lib
from moeway._streams import current_stream, stream_pointer
from moeway._structs import InputStruct, OutputStruct, PeerStatsStruct, RoutingStruct, StatsStruct, TensorStruct
from moeway.communicator import Communicator
from moeway.config import AllToAllConfig, AllToAllSizes, sizes_of
from moeway.enums import DeviceType, DType, Layout, Quantise, Scales
from moeway.errors import InvalidArgumentError
from moeway.tensor import TensorLike

__all__ = ["AllToAll", "AllToAllStats", "DispatchOutput", "PeerStats", "Routing"]

_SCALES_DTYPES = {Scales.F32: DType.F32, Scales.UE8M0: DType.UE8M0, Scales.BYTES: DType.BYTES}


class Routing(NamedTuple):
    """Which dispatch a combine belongs to. Valid until the second next dispatch_send of the same object."""

    object: int  # the AllToAll it came from
    dispatch: int  # its how-manieth dispatch, from 1
    num_tokens: int  # T of the dispatch, the rows of x, and so of y
    kind: str  # the library of the dispatch's tensors: where outputs come from that the caller does not give
    is_unweighted: bool = False  # combine takes every weight as 1

    def unweighted(self) -> "Routing":
        """The same routes with all weights taken as 1, for the combine that is the backward of a dispatch."""
        return self._replace(is_unweighted=True)

    def to_struct(self) -> RoutingStruct:
        """The moeway_routing."""
        return RoutingStruct(self.object, self.dispatch, self.is_unweighted)


@dataclasses.dataclass
class DispatchOutput:
    """Where dispatch writes. W ranks, R replicas, M most tokens, L local experts, K routes a token.

    x and scales: expert_padded [L, >= capacity, H], expert_packed [>= max_rows, H], token_major [W / R * M, H] or None
    to leave them in the heap (AllToAll.view). scales likewise with num_scales columns; None without scales.
    """

    x: TensorLike = None
    scales: TensorLike = None
    num_rows: TensorLike = None  # int32 [L]: rows of each local expert, without dropped ones
    first_row: TensorLike = None  # int64 [L], optional, not token_major: first row of each expert
    row_source: TensorLike = None  # int32 [..., 3], optional, not token_major: source rank, token, k
    row_weight: TensorLike = None  # f32 [..., 1], optional, weights at dispatch, not token_major
    topk_idx: TensorLike = None  # token_major: int32 [W / R * M, K], local experts, -1 for none here
    topk_weights: TensorLike = None  # token_major: f32 [W / R * M, K]
    num_dropped: TensorLike = None  # int32 [L], optional: rows of each expert that there was no room for


class AllToAllStats(NamedTuple):
    """What this rank has moved since creation: moeway_all_to_all_stats."""

    num_dispatches: int
    tokens_sent: int  # (token, destination rank) pairs
    routes_sent: int
    rows_received: int
    rows_dropped: int  # that max_recv_tokens had no room for
    dispatch_sent_bytes: int
    combine_sent_bytes: int


class PeerStats(NamedTuple):
    """What this rank and a peer have exchanged since creation: moeway_peer_stats."""

    tokens_sent: int
    tokens_received: int
    dispatch_sent_bytes: int
    dispatch_received_bytes: int
    combine_sent_bytes: int
    waited_ns: int  # how long this rank has waited for it


class AllToAll:
    """Dispatch and combine of one shape. Creation is collective and takes all memory; a context manager closes it.

    `config` is an AllToAllConfig, or its fields come as keyword arguments: AllToAll(communicator, num_experts=8,
    topk=2, hidden=64, max_tokens=16). Use by one thread at a time. On CUDA ranks calls go to torch's (or cupy's)
    current stream unless set_stream has named one.
    """

    def __init__(self, communicator: Communicator, config: Optional[AllToAllConfig] = None, **fields: Any) -> None:
        self._handle = c_void_p()
        self._communicator = communicator  # Its callback may be called at creation.
        try:
            if config is not None and fields:
                raise TypeError(f"config is given, and so are {', '.join(fields)}: expected one or the other")
            self.config: AllToAllConfig = AllToAllConfig(**fields) if config is None else config
            struct = self.config.to_struct()
        except Exception:
            # The other ranks are on their way: they hear that this one has no config, rather than wait for it.
            lib.moeway_all_to_all_create(communicator._handle, None, ctypes.byref(self._handle))
            raise
        self._device_type, self._device_index = communicator.device_type, communicator.device_index
        self._rank, self._size = communicator.rank, communicator.size
        self._make_arguments()
        self._pinned_stream: Optional[Tuple[Optional[int]]] = None
        self._stream: Optional[int] = None  # What the object in the library has; at creation it has the default stream.
        communicator.collective_call(lib.moeway_all_to_all_create, communicator._handle,
                                     ctypes.byref(struct), ctypes.byref(self._handle))
        self.sizes: AllToAllSizes = sizes_of(self.config, self._rank, self._size)

    def dispatch_send(self, x: TensorLike, topk_idx: TensorLike, topk_weights: Optional[TensorLike] = None,
                      scales: Optional[TensorLike] = None, num_tokens: Optional[TensorLike] = None) -> Routing:
        """Sends x[t] (and its scales) once to every rank that owns one of t's experts. Never waits for a peer.

        x [T, H] dispatch_dtype (bf16 with quantise; [T, token_bytes] for bytes), topk_idx [T, K] int32 or int64 with
        -1 for no route, topk_weights [T, K] f32 with weights at dispatch and else None, scales [T, num_scales]. Strides
        may be any. num_tokens: an int32 tensor of one element on the rank's device, read when the call runs (in a
        replayed graph at each replay): only that many rows are tokens, and combine leaves y behind them as it is.
        """
        self._follow_stream()
        kept, routing = self._set_input(x, topk_idx, topk_weights, scales, num_tokens), RoutingStruct()
        call(lib.moeway_dispatch_send, self._handle, self._input, ctypes.byref(routing))
        del kept
        return self._routing(routing, x)

    def dispatch_recv(self, routing: Routing, output: Optional[DispatchOutput] = None) -> DispatchOutput:
        """Waits for the rows of this rank's experts and writes them to `output`, by default a new one; returns it.

        Rows of an expert come in order of (source rank, token, k); what lies behind them is left as it was.
        """
        self._follow_stream()
        output = self.allocate_output(routing.kind) if output is None else output
        kept = self._set_output(output)
        call(lib.moeway_dispatch_recv, self._handle, routing.to_struct(), self._output)
        del kept
        return output

    def dispatch(self, x: TensorLike, topk_idx: TensorLike, topk_weights: Optional[TensorLike] = None,
                 scales: Optional[TensorLike] = None, output: Optional[DispatchOutput] = None,
                 num_tokens: Optional[TensorLike] = None) -> Tuple[Routing, DispatchOutput]:
        """dispatch_send and dispatch_recv in one call."""
        self._follow_stream()
        output = self.allocate_output(_arrays.kind_of(x)) if output is None else output
        kept = self._set_input(x, topk_idx, topk_weights, scales, num_tokens), self._set_output(output)
        routing = RoutingStruct()
        call(lib.moeway_dispatch, self._handle, self._input, self._output, ctypes.byref(routing))
        del kept
        return self._routing(routing, x), output

    def combine_send(self, routing: Routing, rows: TensorLike) -> None:
        """Sends the experts' rows back: the shape of dispatch's x with H elements of row_dtype. Never waits for a peer.

        token_major: one row per received token, already weighted and summed over this rank's experts.
        """
        self._follow_stream()
        kept = self._rows.set(rows)
        call(lib.moeway_combine_send, self._handle, routing.to_struct(), self._rows.struct)
        del kept

    def combine_recv(self, routing: Routing, topk_weights: Optional[TensorLike] = None,
                     y: Optional[TensorLike] = None, *, add: bool = False) -> TensorLike:
        """Waits for the results of this rank's tokens and writes their sums to y [T, H] output_dtype; returns it.

        topk_weights [T, K] f32 with weights at combine, else None, as for routing.unweighted(). y: by default a new
        array. add: onto what y holds, in float32, rounded once; tokens without routes leave it as it is.
        """
        self._follow_stream()
        y = self._given_y(routing, y, add)
        kept = self._weights.set(topk_weights), self._y.set(y)
        call(lib.moeway_combine_recv_add if add else lib.moeway_combine_recv, self._handle, routing.to_struct(),
             None if topk_weights is None else self._weights.struct, self._y.struct)
        del kept
        return y

    def combine(self, routing: Routing, rows: TensorLike, topk_weights: Optional[TensorLike] = None,
                y: Optional[TensorLike] = None, *, add: bool = False) -> TensorLike:
        """combine_send and combine_recv in one call."""
        self._follow_stream()
        y = self._given_y(routing, y, add)
        kept = self._rows.set(rows), self._weights.set(topk_weights), self._y.set(y)
        call(lib.moeway_combine_add if add else lib.moeway_combine, self._handle, routing.to_struct(), self._rows.struct,
             None if topk_weights is None else self._weights.struct, self._y.struct)
        del kept
        return y

    def view(self, routing: Routing) -> Tuple[TensorLike, Optional[TensorLike]]:
        """token_major without a copy: x [W / R * M, H] and the scales (or None) where they lie in the symmetric heap.

        After a dispatch_recv whose output had no x (allocate_output(in_heap=True)). Valid until this rank's next
        dispatch_send; once the object is closed the memory is gone, and touching the arrays is a fault of the process.
        """
        x, scales = TensorStruct(), TensorStruct()
        call(lib.moeway_dispatch_view, self._handle, routing.to_struct(), ctypes.byref(x), ctypes.byref(scales))
        there = scales.ndim > 0
        return _arrays.view(x, routing.kind, self), _arrays.view(scales, routing.kind, self) if there else None

    def allocate_output(self, kind: str = "numpy", *, in_heap: bool = False, first_row: bool = True,
                        row_source: bool = True, row_weight: bool = False,
                        num_dropped: bool = False) -> DispatchOutput:
        """A DispatchOutput that fits, of "numpy", "ml_dtypes", "torch" or "cupy" arrays, which hold anything.

        in_heap: without x and scales, for view() (token_major only).
        """
        sizes, config = self.sizes, self.config
        dtype = config.dispatch_dtype
        if config.layout == Layout.EXPERT_PADDED:
            leading: Tuple[int, ...] = (sizes.num_local_experts, sizes.expert_capacity)
        else:
            leading = (sizes.max_rows,)
        output = DispatchOutput(num_rows=self._empty(kind, (sizes.num_local_experts,), DType.I32))
        if num_dropped:
            output.num_dropped = self._empty(kind, (sizes.num_local_experts,), DType.I32)
        if not in_heap:
            output.x = self._empty(kind, (*leading, sizes.row_bytes // dtype.element_bytes), dtype)
            if config.scales != Scales.NONE:
                output.scales = self._empty(kind, (*leading, sizes.num_scales), _SCALES_DTYPES[config.scales])
        if config.layout == Layout.TOKEN_MAJOR:
            output.topk_idx = self._empty(kind, (*leading, config.topk), DType.I32)
            output.topk_weights = self._empty(kind, (*leading, config.topk), DType.F32)
            return output
        if first_row:
            output.first_row = self._empty(kind, (sizes.num_local_experts,), DType.I64)
        if row_source:
            output.row_source = self._empty(kind, (*leading, 3), DType.I32)
        if row_weight:
            output.row_weight = self._empty(kind, (*leading, 1), DType.F32)
        return output

    def set_stream(self, stream: Any) -> None:
        """CUDA ranks: the stream of later calls: a cudaStream_t as a number, a torch or a cupy stream.

        None, as at creation: at each call the current stream of torch or cupy. Tensors that were allocated on another
        stream must not be freed before the call has run there (torch: record_stream).
        """
        self._pinned_stream = None if stream is None else (stream_pointer(stream),)

    def stats(self) -> AllToAllStats:
        """What this rank has moved since creation. Waits for nothing: kernels of a CUDA rank may still be counting."""
        struct = StatsStruct()
        call(lib.moeway_all_to_all_get_stats, self._handle, ctypes.byref(struct))
        return AllToAllStats(*(getattr(struct, name) for name in AllToAllStats._fields))

    def peer_stats(self) -> List[PeerStats]:
        """What this rank has exchanged with each rank, and how long it waited for it. Waits for nothing, as stats()."""
        structs = (PeerStatsStruct * self._size)()
        for struct in structs:
            struct.struct_size = ctypes.sizeof(PeerStatsStruct)
        call(lib.moeway_all_to_all_get_peer_stats, self._handle, self._size, structs)
        return [PeerStats(*(getattr(struct, name) for name in PeerStats._fields)) for struct in structs]

    def status(self) -> None:
        """Raises the failure that ended this object's use, if there is one; once it is closed, WrongStateError."""
        call(lib.moeway_all_to_all_status, self._handle)

    def close(self) -> None:
        """Releases the object's memory. Not collective; never waits for a peer; a second call does nothing."""
        call(lib.moeway_all_to_all_close, self._handle)

    def __enter__(self) -> "AllToAll":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __del__(self) -> None:
        lib.moeway_all_to_all_destroy(self._handle)

    def _follow_stream(self) -> None:
        if self._device_type != DeviceType.CUDA:
            return
        pinned = self._pinned_stream
        stream = current_stream(self._device_index) if pinned is None else pinned[0]
        if stream != self._stream:
            call(lib.moeway_all_to_all_set_stream, self._handle, stream)
            self._stream = stream

    def _empty(self, kind: str, shape: Tuple[int, ...], dtype: DType) -> TensorLike:
        return _arrays.empty(kind, shape, dtype, self._device_type, self._device_index)

    def _make_arguments(self) -> None:
        """Structs that stay, one for each argument of a call, and what raw elements are taken for."""
        config, index = self.config, self._device_index
        scales = _SCALES_DTYPES.get(config.scales)
        given, output = InputStruct(), OutputStruct()
        given_x = config.dispatch_dtype if config.quantise == Quantise.NONE else DType.BF16
        of_type = {"x": given_x, "scales": scales}
        self._inputs = [Argument(name, getattr(given, name), of_type.get(name), index)
                        for name in ("x", "topk_idx", "topk_weights", "scales", "num_tokens")]
        of_type["x"] = config.dispatch_dtype
        self._outputs = [(name, Argument(name, getattr(output, name), of_type.get(name), index, write=True))
                         for name in (field.name for field in dataclasses.fields(DispatchOutput))]
        self._input, self._output = ctypes.byref(given), ctypes.byref(output)
        self._topk_idx = given.topk_idx
        self._rows = Argument("rows", TensorStruct(), config.row_dtype, index)
        self._weights = Argument("topk_weights", TensorStruct(), None, index)
        self._y = Argument("y", TensorStruct(), config.output_dtype, index, write=True)

    def _set_input(self, x: TensorLike, topk_idx: TensorLike, topk_weights: Optional[TensorLike],
                   scales: Optional[TensorLike], num_tokens: Optional[TensorLike]) -> List[Any]:
        if num_tokens is not None and getattr(num_tokens, "ndim", 1) == 0:
            num_tokens = num_tokens.reshape(1)  # In c_api.h a tensor without dimensions is none.
        values = (x, topk_idx, topk_weights, scales, num_tokens)
        return [argument.set(value) for argument, value in zip(self._inputs, values)]

    def _set_output(self, output: DispatchOutput) -> List[Any]:
        return [argument.set(getattr(output, name)) for name, argument in self._outputs]

    def _routing(self, routing: RoutingStruct, x: TensorLike) -> Routing:
        return Routing(routing.object, routing.dispatch, self._topk_idx.shape[0], _arrays.kind_of(x))

    def _given_y(self, routing: Routing, y: Optional[TensorLike], add: bool) -> TensorLike:
        if y is not None:
            return y
        if add:
            raise InvalidArgumentError("y is None with add, expected the tensor to add onto")
        return self._empty(routing.kind, (routing.num_tokens, self.config.hidden), self.config.output_dtype)
