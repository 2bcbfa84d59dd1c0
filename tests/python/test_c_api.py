"""The package repeats c_api.h in Python: structs, enumerations, functions. Here they are compared with the header."""

import ctypes
import pathlib
import re

import moeway
import pytest
from moeway import _library, _structs

HEADERS = pathlib.Path(__file__).resolve().parents[2] / "include" / "moeway"
TEXT = "".join(re.sub(r"//[^\n]*", "", header.read_text(encoding="utf-8")) for header in sorted(HEADERS.glob("c_api*.h")))

ENUMS = {"dtype": moeway.DType, "device_type": moeway.DeviceType, "layout": moeway.Layout, "scales": moeway.Scales,
         "quantise": moeway.Quantise, "weights": moeway.Weights, "overflow": moeway.Overflow,
         "execution": moeway.Execution}
STRUCTS = {
    "tensor": _structs.TensorStruct, "communicator_options": _structs.CommunicatorOptionsStruct,
    "all_to_all_config": _structs.ConfigStruct, "all_to_all_sizes": _structs.SizesStruct,
    "routing": _structs.RoutingStruct, "dispatch_input": _structs.InputStruct, "dispatch_output": _structs.OutputStruct,
    "all_to_all_stats": _structs.StatsStruct, "peer_stats": _structs.PeerStatsStruct,
}
C_TYPES = {"uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64,
           "uint64_t": ctypes.c_uint64, "void*": ctypes.c_void_p, "moeway_tensor": _structs.TensorStruct,
           "size_t": ctypes.c_size_t, "const char*": ctypes.c_char_p}


def values_of(name):
    body = re.search(rf"typedef enum moeway_{name} MOEWAY_ENUM_TYPE \{{(.*?)\}}", TEXT, re.S).group(1)
    return {key: int(value) for key, value in re.findall(r"MOEWAY_(\w+)\s*=\s*(\d+)", body)}


def type_of(text):
    return ctypes.c_int32 if text.startswith("moeway_") and text[7:] in (*ENUMS, "status") else C_TYPES[text]


def fields_of(name):
    body = re.search(rf"typedef struct moeway_{name} \{{(.*?)\}} moeway_{name};", TEXT, re.S).group(1)
    fields = []
    for kind, field, count in re.findall(r"\s*([\w]+\*?)\s+(\w+)(?:\[(\d)\])?;", body):
        fields.append((field, type_of(kind) * int(count) if count else type_of(kind)))
    return fields


@pytest.mark.parametrize("name", STRUCTS)
def test_a_struct_has_the_header_s_fields(name):
    assert STRUCTS[name]._fields_ == fields_of(name)


def test_all_structs_of_the_header_are_there():
    assert set(re.findall(r"typedef struct moeway_(\w+) \{", TEXT)) == set(STRUCTS)


@pytest.mark.parametrize("name", ENUMS)
def test_an_enumeration_has_the_header_s_values(name):
    prefix = {"scales": "SCALES_", "quantise": "QUANTISE_", "weights": "WEIGHTS_", "overflow": "OVERFLOW_"}.get(name, "")
    assert {prefix + member.name: member.value for member in ENUMS[name]} == values_of(name)


def test_every_status_has_an_exception():
    statuses = values_of("status")
    del statuses["OK"]
    errors = [getattr(moeway, name) for name in moeway.__all__ if name.endswith("Error") and name != "MoewayError"]
    assert {error.name: error.status for error in errors} == statuses
    for name, status in statuses.items():
        assert _library.lib.moeway_status_name(status) == name.encode()


def test_every_function_is_declared_with_its_result():
    declared = {name: result.strip() for result, name in re.findall(r"MOEWAY_API ([\w \*]+?)\s*\b(moeway_\w+)\(", TEXT)}
    ours = {name: result for name, result, _ in _library.PROTOTYPES}
    assert set(ours) == set(declared)
    for name, result in declared.items():
        expected = None if result == "void" else type_of(result.replace(" *", "*"))
        assert ours[name] is expected, name


def test_every_function_takes_the_header_s_number_of_arguments():
    for name, _, arguments in _library.PROTOTYPES:
        text = re.search(rf"MOEWAY_API [^;]*?\b{name}\(([^)]*)\);", TEXT).group(1).strip()
        assert len(arguments) == (0 if text == "void" else text.count(",") + 1), name


def test_dtypes_have_the_library_s_names_and_sizes():
    for dtype in moeway.DType:
        assert _library.lib.moeway_dtype_name(dtype).decode() == dtype.name.lower()
        assert _library.lib.moeway_dtype_bytes(dtype) == dtype.element_bytes


def test_a_config_starts_with_the_library_s_defaults():
    body = re.search(r"moeway_all_to_all_config_init\(.*?\{(.*?)\n\}", TEXT, re.S).group(1)
    defaults = dict(re.findall(r"config->(\w+) = ([^;]+);", body))
    struct = moeway.AllToAllConfig(1, 1, 1, 1).to_struct()
    for field, _ in struct._fields_[5:]:
        text = defaults.get(field, "0")
        expected = _library.lib.moeway_default_timeout_ms() if field == "timeout_ms" else int(text)
        assert getattr(struct, field) == expected, field


def test_experts_are_owned_as_the_library_says():
    assert [moeway.expert_owner(e, 5, 3) for e in range(-1, 6)] == [-1, 0, 0, 1, 1, 2, -1]
    assert [moeway.first_expert(r, 5, 3) for r in range(4)] == [0, 2, 4, -1]
    assert [moeway.num_local_experts(r, 5, 3) for r in range(4)] == [2, 2, 1, -1]


def test_sizes_are_there_without_a_job():
    sizes = moeway.sizes_of(moeway.AllToAllConfig(num_experts=5, topk=2, hidden=8, max_tokens=3), 0, 4)
    assert (sizes.first_local_expert, sizes.num_local_experts, sizes.expert_capacity) == (0, 2, 24)
    assert sizes.row_bytes == 16 and sizes.heap_bytes > 0
    with pytest.raises(moeway.InvalidArgumentError, match="topk is 9"):
        moeway.sizes_of(moeway.AllToAllConfig(num_experts=5, topk=9, hidden=8, max_tokens=3), 0, 4)
