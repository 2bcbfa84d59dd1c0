"""The structs of include/moeway/c_api.h and c_api_stats.h, field by field. tests/python/test_c_api.py compares them with the header."""

from __future__ import annotations

import ctypes
from ctypes import c_int32, c_int64, c_uint32, c_uint64, c_void_p


class VersionedStruct(ctypes.Structure):
    """A struct that opens with its own size: zeros otherwise, as the *_init functions of the header leave it."""

    def __init__(self) -> None:
        super().__init__()
        self.struct_size = ctypes.sizeof(self)


class TensorStruct(ctypes.Structure):
    """moeway_tensor."""

    _fields_ = [
        ("data", c_void_p),
        ("dtype", c_int32),
        ("device_type", c_int32),
        ("device_index", c_int32),
        ("ndim", c_int32),
        ("shape", c_int64 * 3),
        ("strides", c_int64 * 3),
    ]


class CommunicatorOptionsStruct(VersionedStruct):
    """moeway_communicator_options."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("timeout_ms", c_int64),
        ("device_type", c_int32),
        ("device_index", c_int32),
    ]


class ConfigStruct(VersionedStruct):
    """moeway_all_to_all_config."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("num_experts", c_int32),
        ("topk", c_int32),
        ("hidden", c_int64),
        ("max_tokens", c_int64),
        ("dispatch_dtype", c_int32),
        ("token_bytes", c_int64),
        ("scales", c_int32),
        ("scale_bytes", c_int64),
        ("quantise", c_int32),
        ("row_dtype", c_int32),
        ("output_dtype", c_int32),
        ("layout", c_int32),
        ("alignment", c_int64),
        ("weights", c_int32),
        ("distinct_experts", c_int32),
        ("replicas", c_int32),
        ("max_recv_tokens", c_int64),
        ("overflow", c_int32),
        ("execution", c_int32),
        ("num_warps", c_int32),
        ("timeout_ms", c_int64),
        ("num_sms", c_int32),
    ]


class SizesStruct(VersionedStruct):
    """moeway_all_to_all_sizes."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("first_local_expert", c_int64),
        ("num_local_experts", c_int64),
        ("expert_capacity", c_int64),
        ("max_rows", c_int64),
        ("row_bytes", c_int64),
        ("num_scales", c_int64),
        ("heap_bytes", c_int64),
        ("workspace_bytes", c_int64),
    ]


class RoutingStruct(ctypes.Structure):
    """moeway_routing."""

    _fields_ = [("object", c_uint64), ("dispatch", c_uint64), ("unweighted", c_int32)]


class InputStruct(VersionedStruct):
    """moeway_dispatch_input."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("x", TensorStruct),
        ("scales", TensorStruct),
        ("topk_idx", TensorStruct),
        ("topk_weights", TensorStruct),
        ("num_tokens", TensorStruct),
    ]


class OutputStruct(VersionedStruct):
    """moeway_dispatch_output."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("x", TensorStruct),
        ("scales", TensorStruct),
        ("num_rows", TensorStruct),
        ("first_row", TensorStruct),
        ("row_source", TensorStruct),
        ("row_weight", TensorStruct),
        ("topk_idx", TensorStruct),
        ("topk_weights", TensorStruct),
        ("num_dropped", TensorStruct),
    ]


class StatsStruct(VersionedStruct):
    """moeway_all_to_all_stats."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("num_dispatches", c_int64),
        ("tokens_sent", c_int64),
        ("routes_sent", c_int64),
        ("rows_received", c_int64),
        ("rows_dropped", c_int64),
        ("dispatch_sent_bytes", c_int64),
        ("combine_sent_bytes", c_int64),
    ]


class PeerStatsStruct(VersionedStruct):
    """moeway_peer_stats."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("tokens_sent", c_int64),
        ("tokens_received", c_int64),
        ("dispatch_sent_bytes", c_int64),
        ("dispatch_received_bytes", c_int64),
        ("combine_sent_bytes", c_int64),
        ("waited_ns", c_int64),
    ]
