"""What counts as a tensor: numpy, DLPack, `__cuda_array_interface__`, raw elements, types of ml_dtypes."""

import ctypes

import moeway
import numpy as np
import pytest
from moeway.enums import DeviceType
from ranks import run_threads

CONFIG = dict(num_experts=2, topk=1, hidden=4, max_tokens=3, distinct_experts=True)


class OnlyDlpack:
    """An array of which nothing is known but that it speaks DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        if "max_version" in options and not getattr(np, "__version__", "1").startswith("2"):
            raise TypeError("no versions here")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnDevice:
    """A `__cuda_array_interface__` over memory that is nobody's."""

    def __init__(self, typestr="<f4", strides=None, read_only=False):
        self.__cuda_array_interface__ = {"data": (0x1000, read_only), "shape": (2, 4), "typestr": typestr,
                                         "strides": strides, "version": 3}


def round_of(x, idx, weights, **config):
    """One rank's round with rows as they came; gives y."""

    def job(communicator):
        with moeway.AllToAll(communicator, **{**CONFIG, **config}) as all_to_all:
            routing, output = all_to_all.dispatch(x, idx, weights)
            return all_to_all.combine(routing, output.x)

    return run_threads(1, job)[0]


IDX, WEIGHTS = np.int32([[0], [1], [-1]]), np.float32([[1], [2], [3]])
F32 = dict(dispatch_dtype="f32", row_dtype="f32", output_dtype="f32")
X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = X * np.float32([[1], [2], [0]])


def test_reads_dlpack():
    assert (round_of(OnlyDlpack(X), OnlyDlpack(IDX), OnlyDlpack(WEIGHTS), **F32) == Y).all()


def test_reads_strides_through_dlpack():
    wide = np.zeros((3, 9), np.float32)
    wide[:, 1::2] = X
    assert (round_of(OnlyDlpack(wide[:, 1::2]), IDX, WEIGHTS, **F32) == Y).all()
    described = moeway.Tensor(OnlyDlpack(wide[::2, 1:]))
    assert described.shape == (2, 8) and list(described.to_struct("x").strides)[:2] == [18, 1]


def test_writes_through_dlpack():
    def job(communicator):
        with moeway.AllToAll(communicator, **{**CONFIG, **F32}) as all_to_all:
            routing, output = all_to_all.dispatch(X, IDX, WEIGHTS)
            y = np.zeros((3, 4), np.float32)
            all_to_all.combine(routing, output.x, y=OnlyDlpack(y))
            assert (y == Y).all()

    run_threads(1, job)


def test_a_read_only_dlpack_tensor_is_no_output():
    array = np.zeros((3, 4), np.float32)
    array.flags.writeable = False
    with pytest.raises(moeway.InvalidArgumentError):
        moeway.tensor.struct_of("y", OnlyDlpack(array), None, 0, write=True)


def test_a_capsule_of_another_kind_is_refused():
    class Wrong(OnlyDlpack):
        def __dlpack__(self, **_options):
            new = ctypes.pythonapi.PyCapsule_New
            new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
            return new(1, b"something else", None)

    with pytest.raises(moeway.InvalidArgumentError, match="returned no DLPack capsule"):
        moeway.Tensor(Wrong(X))


def test_a_device_of_another_kind_is_refused():
    class Elsewhere(OnlyDlpack):
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **options):
            raise BufferError("it is on a device that cannot be exported")

    with pytest.raises(moeway.InvalidArgumentError, match="cannot be exported"):
        moeway.Tensor(Elsewhere(X))


def test_reads_cuda_array_interface():
    tensor = moeway.Tensor(OnDevice(strides=(32, 4)), device_index=1)
    struct = tensor.to_struct("x")
    assert (tensor.device_type, tensor.device_index, tensor.dtype) == (DeviceType.CUDA, 1, moeway.DType.F32)
    assert (struct.data, list(struct.shape)[:2], list(struct.strides)[:2]) == (0x1000, [2, 4], [8, 1])
    assert list(moeway.Tensor(OnDevice()).to_struct("x").strides)[:2] == [4, 1]
    assert not moeway.Tensor(OnDevice(read_only=True)).writable


def test_memory_of_another_device_is_refused_by_the_library():
    def job(communicator):
        with moeway.AllToAll(communicator, **{**CONFIG, **F32}) as all_to_all:
            with pytest.raises(moeway.InvalidArgumentError, match="x is on device type 1"):
                all_to_all.dispatch(OnDevice(), IDX[:2], WEIGHTS[:2])

    run_threads(1, job)


def test_raw_elements_are_of_the_type_that_the_config_names():
    raw = np.uint16([[0x3F80, 0x4000, 0x4040, 0x4080]])  # 1, 2, 3, 4 in bf16
    y = round_of(raw, IDX[1:2], WEIGHTS[1:2])
    assert y.dtype == np.uint16 and (y == [[0x4000, 0x4080, 0x40C0, 0x4100]]).all()


def test_a_tensor_says_outright_what_its_elements_are():
    raw = np.zeros((1, 4), np.uint16)
    assert moeway.Tensor(raw, "bf16").dtype == moeway.DType.BF16
    assert moeway.Tensor(np.zeros(4, np.uint8)).dtype == moeway.DType.BYTES
    for wrong, message in (("f32", "float32|elements of type uint16"), ("i64", "elements of type uint16")):
        with pytest.raises(moeway.InvalidArgumentError, match=message):
            moeway.Tensor(raw, wrong)
    with pytest.raises(moeway.InvalidArgumentError, match="dtype is bf16, but the elements are float16"):
        moeway.Tensor(raw.view(np.float16), "bf16")
    y = round_of(moeway.Tensor(np.uint16([[0x3F80] * 4]), "bf16"), IDX[:1], WEIGHTS[:1])
    assert (y == 0x3F80).all()


def test_types_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    y = round_of(X.astype(ml_dtypes.bfloat16), IDX, WEIGHTS)
    assert y.dtype == ml_dtypes.bfloat16 and (y.astype(np.float32) == Y).all()
    assert moeway.Tensor(np.zeros(2, ml_dtypes.float8_e4m3fn)).dtype == moeway.DType.F8_E4M3
    assert moeway.Tensor(np.zeros(2, ml_dtypes.float8_e8m0fnu)).dtype == moeway.DType.UE8M0


def test_numpy_names_choices_too():
    config = moeway.AllToAllConfig(1, 1, 1, 1, dispatch_dtype=np.dtype("float16"), scales="NONE")
    assert config.dispatch_dtype == moeway.DType.F16


def test_a_view_lies_in_the_heap():
    def job(communicator):
        with moeway.AllToAll(communicator, **{**CONFIG, **F32}, layout="token_major") as all_to_all:
            for number in range(3):
                routing = all_to_all.dispatch_send(X + number, IDX, WEIGHTS)
                output = all_to_all.dispatch_recv(routing, all_to_all.allocate_output(in_heap=True))
                x, scales = all_to_all.view(routing)
                assert scales is None and x.shape == (3, 4) and (x[:2] == X[:2] + number).all()
                rows = x * np.where(output.topk_idx >= 0, output.topk_weights, 0)
                assert (all_to_all.combine(routing, rows) == (X + number) * np.float32([[1], [2], [0]])).all()

    run_threads(1, job)
