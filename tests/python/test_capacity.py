"""Bounded outputs, combine onto an existing output, and what peers moved and were waited for."""

import time

import moeway
import numpy as np
import pytest
from places import ON_GPUS, place_of
from ranks import run_threads

CONFIG = dict(num_experts=2, topk=2, hidden=4, max_tokens=3, dispatch_dtype="f32", row_dtype="f32", output_dtype="f32")


def inputs(communicator):
    """Three tokens, each to both experts: expert e is rank e's, and gets six rows."""
    place = place_of(communicator)
    x = np.arange(12, dtype=np.float32).reshape(3, 4) + 100 * communicator.rank
    return (place, place.put(x), place.put(np.int32([[0, 1], [1, 0], [0, 1]])),
            place.put(np.float32([[1, 2], [4, 8], [16, 32]])))


@pytest.mark.parametrize("layout", ["expert_padded", "expert_packed"])
def test_rows_without_room_are_dropped_and_left_out_of_sums(layout):
    def job(communicator):
        place, x, idx, weights = inputs(communicator)
        with moeway.AllToAll(communicator, layout=layout, max_recv_tokens=4, overflow="drop", **CONFIG) as all_to_all:
            assert all_to_all.sizes.max_rows == all_to_all.sizes.expert_capacity == 4
            output = all_to_all.allocate_output(place.kind, num_dropped=True)
            routing, output = all_to_all.dispatch(x, idx, weights, output=output)
            assert place.get(output.num_rows).tolist() == [4] and place.get(output.num_dropped).tolist() == [2]
            sources = place.get(output.row_source).reshape(-1, 3)
            assert [tuple(source[:2]) for source in sources] == [(0, 0), (0, 1), (0, 2), (1, 0)]
            y = place.get(all_to_all.combine(routing, output.x))
            # Rank 1 keeps one token, at both experts.
            factors = np.float32([[3], [12], [48]] if communicator.rank == 0 else [[3], [0], [0]])
            assert (y == factors * place.get(x)).all()
            stats = all_to_all.stats()
            assert (stats.rows_received, stats.rows_dropped) == (4, 2)

    run_threads(2, job)


def test_overflow_is_an_error_unless_it_may_drop():
    def job(communicator):
        _, x, idx, weights = inputs(communicator)
        with moeway.AllToAll(communicator, max_recv_tokens=5, **CONFIG) as all_to_all:
            with pytest.raises(moeway.RowOverflowError, match="expert [01] gets 6 rows.* max_recv_tokens = 5"):
                all_to_all.dispatch(x, idx, weights)
                while True:  # A device tells later.
                    all_to_all.status()

    run_threads(2, job)


def test_a_bound_must_fit_its_layout():
    for fields, message in ((dict(layout="expert_packed", alignment=4, max_recv_tokens=6), "a multiple of alignment = 4"),
                            (dict(layout="token_major", max_recv_tokens=5), "ranks \\* max_tokens = 2 \\* 3 = 6")):
        with pytest.raises(moeway.InvalidArgumentError, match=f"max_recv_tokens is {fields['max_recv_tokens']}.*{message}"):
            moeway.sizes_of(moeway.AllToAllConfig(**fields, **CONFIG), 0, 2)


@pytest.mark.parametrize("halves", [False, True])
def test_combine_adds_onto_what_y_holds(halves):
    def job(communicator):
        place, x, idx, weights = inputs(communicator)
        idx[1] = -1
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            routing, output = all_to_all.dispatch(x, idx, weights)
            y = place.put(np.full((3, 4), 0.5, np.float32))
            if halves:
                all_to_all.combine_send(routing, output.x)
                assert all_to_all.combine_recv(routing, y=y, add=True) is y
            else:
                assert all_to_all.combine(routing, output.x, y=y, add=True) is y
            assert (place.get(y) == 0.5 + np.float32([[3], [0], [48]]) * place.get(x)).all()
            with pytest.raises(moeway.InvalidArgumentError, match="y is None with add"):
                all_to_all.combine(routing, output.x, add=True)

    run_threads(2, job)


@pytest.mark.skipif(ON_GPUS, reason="the host is late, not a kernel")
def test_peers_are_told_apart_by_what_they_moved_and_how_late_they_were():
    def job(communicator):
        _, x, idx, weights = inputs(communicator)
        idx[1:] = communicator.rank  # One token to both ranks, two to this one.
        with moeway.AllToAll(communicator, **CONFIG) as all_to_all:
            communicator.barrier()
            if communicator.rank == 1:
                time.sleep(0.3)
            routing, output = all_to_all.dispatch(x, idx, weights)
            all_to_all.combine(routing, output.x)
            peers = all_to_all.peer_stats()
        own, other = peers[communicator.rank], peers[1 - communicator.rank]
        assert (own.tokens_sent, own.tokens_received, other.tokens_sent, other.tokens_received) == (3, 3, 1, 1)
        assert own.dispatch_sent_bytes == own.dispatch_received_bytes == 3 * 16
        assert other.combine_sent_bytes == 16
        if communicator.rank == 0:
            assert other.waited_ns > 100e6 and own.waited_ns < other.waited_ns

    run_threads(2, job)
