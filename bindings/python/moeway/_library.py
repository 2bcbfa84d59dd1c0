"""Finds libmoeway, loads it and declares its functions.

Where it is looked for: the file that MOEWAY_LIBRARY names; inside this package, where an installed one has it; in the
build folders of the source tree that this package lies in.

ctypes lets other Python threads run during a call, so that ranks may be threads.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, List

from moeway import _structs as structs
from moeway.errors import error_of

__all__ = ["ALL_GATHER", "call", "lib", "library_path", "source_root", "version"]

PACKAGE = pathlib.Path(__file__).resolve().parent

# moeway_all_gather_fn
ALL_GATHER = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_void_p)

_TENSOR, _HANDLE = POINTER(structs.TensorStruct), c_void_p
_CONFIG, _ROUTING = POINTER(structs.ConfigStruct), structs.RoutingStruct

# Name, result, arguments, as in c_api.h. A result of c_int32 is a moeway_status unless the name says otherwise.
PROTOTYPES = [
    ("moeway_last_error", c_char_p, []),
    ("moeway_status_name", c_char_p, [c_int32]),
    ("moeway_default_timeout_ms", c_int64, []),
    ("moeway_version", c_char_p, []),
    ("moeway_has_cuda", c_int32, []),
    ("moeway_dtype_bytes", c_int64, [c_int32]),
    ("moeway_dtype_name", c_char_p, [c_int32]),
    ("moeway_thread_group_create", c_int32, [c_int32, POINTER(_HANDLE)]),
    ("moeway_thread_group_destroy", None, [_HANDLE]),
    ("moeway_bootstrap_create_threads", c_int32, [_HANDLE, c_int32, POINTER(_HANDLE)]),
    ("moeway_bootstrap_create_local", c_int32, [c_char_p, c_int32, c_int32, c_int64, POINTER(_HANDLE)]),
    ("moeway_bootstrap_create_tcp", c_int32,
     [c_char_p, c_int32, c_char_p, c_int32, c_int32, c_int64, POINTER(_HANDLE)]),
    ("moeway_bootstrap_create_env", c_int32, [c_int64, POINTER(_HANDLE)]),
    ("moeway_bootstrap_create_callback", c_int32, [c_int32, c_int32, ALL_GATHER, c_void_p, POINTER(_HANDLE)]),
    ("moeway_bootstrap_destroy", None, [_HANDLE]),
    ("moeway_bootstrap_rank", c_int32, [_HANDLE]),
    ("moeway_bootstrap_size", c_int32, [_HANDLE]),
    ("moeway_communicator_create", c_int32,
     [_HANDLE, POINTER(structs.CommunicatorOptionsStruct), POINTER(_HANDLE)]),
    ("moeway_communicator_rank", c_int32, [_HANDLE]),
    ("moeway_communicator_size", c_int32, [_HANDLE]),
    ("moeway_communicator_transport", c_char_p, [_HANDLE]),
    ("moeway_communicator_barrier", c_int32, [_HANDLE]),
    ("moeway_communicator_close", c_int32, [_HANDLE]),
    ("moeway_communicator_destroy", None, [_HANDLE]),
    ("moeway_all_to_all_get_sizes", c_int32, [_CONFIG, c_int32, c_int32, POINTER(structs.SizesStruct)]),
    ("moeway_expert_owner", c_int32, [c_int32, c_int32, c_int32]),
    ("moeway_first_expert", c_int32, [c_int32, c_int32, c_int32]),
    ("moeway_num_local_experts", c_int32, [c_int32, c_int32, c_int32]),
    ("moeway_all_to_all_create", c_int32, [_HANDLE, _CONFIG, POINTER(_HANDLE)]),
    ("moeway_dispatch_send", c_int32, [_HANDLE, POINTER(structs.InputStruct), POINTER(_ROUTING)]),
    ("moeway_dispatch_recv", c_int32, [_HANDLE, _ROUTING, POINTER(structs.OutputStruct)]),
    ("moeway_combine_send", c_int32, [_HANDLE, _ROUTING, _TENSOR]),
    ("moeway_combine_recv", c_int32, [_HANDLE, _ROUTING, _TENSOR, _TENSOR]),
    ("moeway_combine_recv_add", c_int32, [_HANDLE, _ROUTING, _TENSOR, _TENSOR]),
    ("moeway_all_to_all_set_stream", c_int32, [_HANDLE, c_void_p]),
    ("moeway_dispatch", c_int32,
     [_HANDLE, POINTER(structs.InputStruct), POINTER(structs.OutputStruct), POINTER(_ROUTING)]),
    ("moeway_combine", c_int32, [_HANDLE, _ROUTING, _TENSOR, _TENSOR, _TENSOR]),
    ("moeway_combine_add", c_int32, [_HANDLE, _ROUTING, _TENSOR, _TENSOR, _TENSOR]),
    ("moeway_dispatch_view", c_int32, [_HANDLE, _ROUTING, _TENSOR, _TENSOR]),
    ("moeway_all_to_all_status", c_int32, [_HANDLE]),
    ("moeway_all_to_all_get_stats", c_int32, [_HANDLE, POINTER(structs.StatsStruct)]),
    ("moeway_all_to_all_get_peer_stats", c_int32, [_HANDLE, c_int32, POINTER(structs.PeerStatsStruct)]),
    ("moeway_all_to_all_close", c_int32, [_HANDLE]),
    ("moeway_all_to_all_destroy", None, [_HANDLE]),
]


def source_root() -> pathlib.Path:
    """The root of the source tree, if this package is used from there."""
    return PACKAGE.parents[2]


def _candidates() -> List[pathlib.Path]:
    named = os.environ.get("MOEWAY_LIBRARY")
    if named:
        return [pathlib.Path(named)]
    inside = sorted(PACKAGE.glob("lib*/libmoeway.so*"))
    is_source_tree = (source_root() / "include/moeway/c_api.h").is_file()
    # Only a program that is built with the same sanitizers can load a library that has some.
    builds = [path for path in source_root().glob("build/*/libmoeway.so")
              if path.parent.name not in ("asan-ubsan", "tsan", "fuzz")] if is_source_tree else []
    return inside + sorted(builds, key=lambda path: path.stat().st_mtime, reverse=True)


def library_path() -> pathlib.Path:
    """The library's file. Raises ImportError if there is none."""
    for path in _candidates():
        if path.is_file():
            return path
    where = os.environ.get("MOEWAY_LIBRARY")
    raise ImportError(
        f"libmoeway was not found: MOEWAY_LIBRARY is {where!r}, which is no file" if where else
        f"libmoeway was not found in {PACKAGE}/lib, nor in a build folder; MOEWAY_LIBRARY may name the file")


def _load() -> ctypes.CDLL:
    path = library_path()
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ImportError(f"libmoeway cannot be loaded from {path}: {error}") from error
    for name, result, arguments in PROTOTYPES:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()


def call(function: Any, *arguments: Any) -> None:
    """Calls a function that returns a moeway_status. Raises the MoewayError of a status that is not OK."""
    status = function(*arguments)
    if status != 0:
        raise error_of(status, lib.moeway_last_error().decode("utf-8", "replace"))


def version() -> str:
    """The version of the library that is running, for example "0.1.0"."""
    return lib.moeway_version().decode()


def has_cuda() -> bool:
    """Whether the library that is in use was built with CUDA: whether ranks can be on CUDA devices."""
    return lib.moeway_has_cuda() != 0
