"""What CUDA ranks have of their own: streams, graphs, late errors. run_gpu.sh runs this and the other tests on GPUs."""

import threading

import moeway
import pytest
from places import ON_GPUS, device_of
from ranks import run_threads, thread_outcomes

if not ON_GPUS:
    pytest.skip("MOEWAY_TEST_DEVICE is not cuda: nothing ran on a GPU", allow_module_level=True)

import torch  # noqa: E402

E, K, H, M = 5, 2, 64, 8
CONFIG = dict(num_experts=E, topk=K, hidden=H, max_tokens=M, dispatch_dtype="f32", row_dtype="f32", output_dtype="f32",
              distinct_experts=True)
CAPTURING = threading.Lock()  # One capture at a time in a process.


def batch(communicator, seed=0):
    random = torch.Generator().manual_seed(10 * seed + communicator.rank)
    x = torch.randint(-8, 9, (M, H), generator=random).float()
    idx = torch.stack([torch.randperm(E, generator=random)[:K] for _ in range(M)])
    weights = torch.randint(1, 5, (M, K), generator=random).float() / 4
    return [tensor.to(device_of(communicator.rank)) for tensor in (x, idx, weights)]


def expected(x, weights):
    return 3 * weights.sum(1, keepdim=True) * x


def one_round(all_to_all, x, idx, weights, output=None, y=None):
    routing, output = all_to_all.dispatch(x, idx, weights, output=output)
    return all_to_all.combine(routing, output.x * 3, y=y)


def test_calls_follow_torch_s_current_stream():
    """Inputs that are ready only on a side stream, behind slow work, arrive whole."""

    def job(communicator):
        device = device_of(communicator.rank)
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            for seed in range(3):
                x, idx, weights = batch(communicator, seed)
                torch.cuda.synchronize(device)
                with torch.cuda.stream(torch.cuda.Stream(device)):
                    slow = torch.randn(2000, 2000, device=device)
                    for _ in range(20):
                        slow = torch.tanh(slow @ slow)
                    late = x + 0 * slow.sum()
                    y = one_round(all_to_all, late, idx, weights)
                    torch.cuda.current_stream(device).synchronize()
                    assert torch.equal(y, expected(x, weights))

    run_threads(2, job)


def test_a_stream_that_is_named_is_taken():
    def job(communicator):
        device = device_of(communicator.rank)
        stream = torch.cuda.Stream(device)
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            x, idx, weights = batch(communicator)
            torch.cuda.synchronize(device)
            for named in (stream, stream.cuda_stream):
                all_to_all.set_stream(named)
                routing, output = all_to_all.dispatch(x, idx, weights)
                with torch.cuda.stream(stream):
                    rows = output.x * 3
                y = all_to_all.combine(routing, rows)
                stream.synchronize()
                assert torch.equal(y, expected(x, weights))
            all_to_all.set_stream(None)
            assert torch.equal(one_round(all_to_all, x, idx, weights), expected(x, weights))

    run_threads(2, job)


def test_a_captured_round_replays():
    def job(communicator):
        device = device_of(communicator.rank)
        torch.cuda.set_device(device)
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            x, idx, weights = batch(communicator)
            output, y = all_to_all.allocate_output("torch"), torch.empty(M, H, device=device)
            for _ in range(2):
                one_round(all_to_all, x, idx, weights, output, y)
            torch.cuda.synchronize(device)
            communicator.barrier()
            graph = torch.cuda.CUDAGraph()
            with CAPTURING, torch.cuda.graph(graph, capture_error_mode="thread_local"):
                one_round(all_to_all, x, idx, weights, output, y)
            communicator.barrier()
            for seed in range(1, 6):
                for tensor, other in zip((x, idx, weights), batch(communicator, seed)):
                    tensor.copy_(other)
                y.zero_()
                graph.replay()
                torch.cuda.synchronize(device)
                assert torch.equal(y, expected(x, weights))
            all_to_all.status()

    run_threads(2, job)


class Interface:
    """A tensor of which only `__cuda_array_interface__` is known."""

    def __init__(self, tensor):
        self.tensor, self.shape = tensor, tensor.shape
        self.__cuda_array_interface__ = tensor.__cuda_array_interface__


class Dlpack:
    """A tensor of which only DLPack is known."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("wrap", [Interface, Dlpack])
def test_tensors_of_other_libraries(wrap):
    def job(communicator):
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            x, idx, weights = batch(communicator)
            given = all_to_all.allocate_output("torch")
            y = torch.empty_like(x)
            one = moeway.DispatchOutput(x=wrap(given.x), num_rows=wrap(given.num_rows))
            routing, _ = all_to_all.dispatch(wrap(x), wrap(idx), wrap(weights), output=one)
            all_to_all.combine(routing, wrap(given.x * 3), y=wrap(y))
            assert torch.equal(y, expected(x, weights))
            with pytest.raises(moeway.InvalidArgumentError, match="give the outputs"):
                all_to_all.dispatch(wrap(x), wrap(idx), wrap(weights))

    run_threads(2, job)


def test_a_wrong_route_is_raised_by_a_later_call():
    def job(communicator):
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            x, idx, weights = batch(communicator)
            idx[1, 1] = E
            all_to_all.dispatch_send(x, idx, weights)
            torch.cuda.synchronize(x.device)
            all_to_all.status()

    for ok, error, _ in thread_outcomes(2, job):
        assert not ok and isinstance(error, moeway.InvalidArgumentError) and "topk_idx[1, 1]" in str(error)


def test_memory_of_the_host_is_refused():
    def job(communicator):
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            x, idx, weights = batch(communicator)
            with pytest.raises(moeway.InvalidArgumentError, match="x is on device type 0"):
                all_to_all.dispatch_send(x.cpu(), idx, weights)

    run_threads(1, job)
