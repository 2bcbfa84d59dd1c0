"""Mistakes and failures: which exception comes, what it says, and that nobody waits past the deadline."""

import threading
import time

import moeway
import numpy as np
import pytest
from ranks import run_threads, thread_outcomes

CONFIG = dict(num_experts=4, topk=2, hidden=8, max_tokens=3, dispatch_dtype="f32", row_dtype="f32", output_dtype="f32")


def tensors(num_tokens=2, **changes):
    given = dict(x=np.ones((num_tokens, 8), np.float32), topk_idx=np.tile(np.int32([0, 3]), (num_tokens, 1)),
                 topk_weights=np.ones((num_tokens, 2), np.float32))
    return {**given, **changes}


def raises_alone(error, message, attempt):
    """`attempt(all_to_all)` on a job of one rank must raise exactly this; the object works on."""

    def job(communicator):
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            with pytest.raises(error) as caught:
                attempt(all_to_all)
            assert type(caught.value) is error and message in str(caught.value), str(caught.value)
            routing, output = all_to_all.dispatch(**tensors())
            assert (all_to_all.combine(routing, output.x) == 2).all()

    run_threads(1, job)


@pytest.mark.parametrize("changes, message", [
    (dict(x=np.ones((2, 7), np.float32)), "x.shape is [2, 7], expected [>= 0, 8]"),
    (dict(x=np.ones((2, 8), np.float16)), "x.dtype is f16, expected f32"),
    (dict(x=np.ones((2, 8))), "x has elements of type float64, expected f32"),
    (dict(x=np.ones((1, 1, 2, 8), np.float32)), "x has 4 dimensions, expected 1 to 3"),
    (dict(x=[[1.0]]), "x cannot be used as a tensor: a list is no numpy array"),
    (dict(x=np.ones((2, 8), ">f4")), "byte order"),
    (dict(x=None), "x.ndim is 0, expected 2"),
    (dict(topk_idx=np.int32([[0, 4], [0, 1]])), "topk_idx[0, 1] is 4, expected -1 (no route) or an expert from 0 to 3"),
    (dict(topk_idx=np.int16([[0, 1], [0, 1]])), "topk_idx has elements of type int16"),
    (dict(topk_weights=None), "topk_weights.ndim is 0, expected 2"),
    (dict(scales=np.ones((2, 1), np.float32)), "scales is given"),
])
def test_a_wrong_input_is_named(changes, message):
    raises_alone(moeway.InvalidArgumentError, message,
                 lambda all_to_all: all_to_all.dispatch_send(**tensors(**changes)))


def test_too_many_tokens_are_refused():
    raises_alone(moeway.InvalidArgumentError, "x.shape[0] is 4, expected at most max_tokens = 3",
                 lambda all_to_all: all_to_all.dispatch(**tensors(4)))


def test_an_output_that_must_not_be_written_is_refused():
    def attempt(all_to_all):
        output = all_to_all.allocate_output()
        output.x.flags.writeable = False
        all_to_all.dispatch(**tensors(), output=output)

    raises_alone(moeway.InvalidArgumentError, "x is read-only", attempt)


def test_an_output_that_is_too_small_is_refused():
    def attempt(all_to_all):
        output = all_to_all.allocate_output()
        output.x = output.x[:, :2]
        all_to_all.dispatch(**tensors(), output=output)

    raises_alone(moeway.InvalidArgumentError, "x.shape is [4, 2, 8], expected [4, >= 6, 8]", attempt)


def test_a_routing_of_another_object_is_refused():
    raises_alone(moeway.WrongStateError, "it comes from another AllToAll",
                 lambda all_to_all: all_to_all.dispatch_recv(moeway.Routing(10**9, 1, 2, "numpy")))


def test_a_combine_out_of_order_is_refused():
    def attempt(all_to_all):
        routing, output = all_to_all.dispatch(**tensors())
        all_to_all.combine(routing, output.x)
        all_to_all.combine(routing, output.x)

    raises_alone(moeway.WrongStateError, "comes after its combine_recv", attempt)


def test_a_closed_object_says_so():
    def job(communicator):
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            all_to_all.status()
        all_to_all.close()
        for call in (all_to_all.status, lambda: all_to_all.dispatch(**tensors())):
            with pytest.raises(moeway.WrongStateError, match="the object is closed"):
                call()
        communicator.close()
        assert communicator.transport == "none"
        with pytest.raises(moeway.WrongStateError, match="the communicator is closed"):
            moeway.AllToAll(communicator, **CONFIG)

    run_threads(1, job)


@pytest.mark.parametrize("fields, error, message", [
    (dict(topk=5), moeway.InvalidArgumentError, "topk is 5, expected 1 to num_experts = 4"),
    (dict(layout="packed"), moeway.InvalidArgumentError, "layout is 'packed', expected one of expert_padded"),
    (dict(row_dtype="f64"), moeway.InvalidArgumentError, "row_dtype is 'f64', expected one of bf16, f16"),
    (dict(num_experts=2**32 + 4), moeway.InvalidArgumentError, "num_experts is 4294967300, which its field"),
    (dict(experts=4), TypeError, "experts"),
])
def test_a_wrong_config_is_named(fields, error, message):
    def job(communicator):
        with pytest.raises(error) as caught:
            moeway.AllToAll(communicator, **{**CONFIG, **fields})
        assert message in str(caught.value)

    run_threads(2, job)


def test_ranks_that_disagree_are_told():
    def job(communicator):
        with pytest.raises(moeway.MismatchError, match="hidden"):
            moeway.AllToAll(communicator, **{**CONFIG, "hidden": 8 + communicator.rank})

    run_threads(2, job)


def test_classes_are_those_of_built_in_exceptions_too():
    assert issubclass(moeway.InvalidArgumentError, ValueError)
    assert issubclass(moeway.DeadlineExceededError, TimeoutError)
    assert issubclass(moeway.PeerLostError, ConnectionError)
    assert issubclass(moeway.OutOfMemoryError, MemoryError)


def test_a_rank_that_raises_leaves_nobody_waiting():
    """Its context managers close its objects, which the others hear at once, long before their deadline."""

    def job(communicator):
        with moeway.AllToAll(communicator, timeout_ms=60000, **CONFIG) as all_to_all:
            routing, output = all_to_all.dispatch(**tensors())
            if communicator.rank == 1:
                raise KeyError("a fault of the caller's own")
            all_to_all.combine(routing, output.x)
            all_to_all.dispatch(**tensors())

    start = time.monotonic()
    outcomes = thread_outcomes(3, job)
    assert time.monotonic() - start < 20
    assert isinstance(outcomes[1][1], KeyError)
    for rank in (0, 2):
        assert isinstance(outcomes[rank][1], moeway.PeerLostError), outcomes[rank]


def test_a_rank_that_does_not_come_is_named_at_the_deadline():
    over = threading.Event()

    def job(communicator):
        all_to_all = moeway.AllToAll(communicator, timeout_ms=300, **CONFIG)
        if communicator.rank == 1:
            assert over.wait(60)  # Leaving would be heard before the deadline.
            return
        start = time.monotonic()
        with pytest.raises(moeway.DeadlineExceededError, match="rank 1"):
            all_to_all.dispatch(**tensors())
        assert time.monotonic() - start < 10
        with pytest.raises(moeway.DeadlineExceededError):
            all_to_all.status()
        over.set()

    run_threads(2, job)


def test_creation_ends_when_a_rank_stays_away():
    group = moeway.ThreadGroup(2)
    bootstrap = moeway.Bootstrap.threads(group, 0)
    with pytest.raises(moeway.DeadlineExceededError, match="rank 1"):
        moeway.Communicator(bootstrap, timeout_ms=200)
    with pytest.raises(moeway.WrongStateError, match="the bootstrap has been used"):
        moeway.Communicator(bootstrap)


@pytest.mark.parametrize("device", ["tpu", "cuda:x"])
def test_a_device_that_is_none_is_refused(device):
    with pytest.raises(moeway.InvalidArgumentError, match="expected 'cpu', 'cuda'"):
        moeway.Communicator(moeway.Bootstrap.threads(moeway.ThreadGroup(1), 0), device=device)
