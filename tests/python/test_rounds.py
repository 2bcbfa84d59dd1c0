"""Dispatch and combine through the package: every layout, weights mode and type, on 2, 4 and 8 ranks, bit by bit."""

import moeway
import numpy as np
import pytest
import reference
from jobs import run_case, run_cases
from places import ON_GPUS, place_of
from ranks import run_processes, run_threads
from reference import Case

# Experts that the ranks do not divide evenly, K below E; ranks without an expert in "few_experts".
FORMS = {
    "padded_bf16": (dict(), "calls"),
    "padded_f16_at_combine": (dict(dispatch_dtype="f16", row_dtype="f16", output_dtype="f32", weights="at_combine"),
                              "phases"),
    "padded_f8_with_f32_scales": (dict(dispatch_dtype="f8_e4m3", scales="f32", hidden=136), "outputs"),
    "padded_distinct": (dict(distinct_experts=True, hidden=1), "calls"),
    "packed_f32_aligned": (dict(layout="expert_packed", alignment=8, dispatch_dtype="f32", row_dtype="f32",
                                output_dtype="f32"), "calls"),
    "packed_f8_with_ue8m0_at_combine": (dict(layout="expert_packed", dispatch_dtype="f8_e4m3", scales="ue8m0",
                                             hidden=256, weights="at_combine"), "phases"),
    "packed_bytes": (dict(layout="expert_packed", alignment=4, dispatch_dtype="bytes", token_bytes=37, scales="bytes",
                          scale_bytes=5, output_dtype="f16"), "outputs"),
    "token_major_bf16": (dict(layout="token_major"), "calls"),
    "token_major_f8_with_f32_scales": (dict(layout="token_major", dispatch_dtype="f8_e4m3", scales="f32", hidden=130,
                                            row_dtype="f32"), "phases"),
    "token_major_in_the_heap": (dict(layout="token_major", dispatch_dtype="f8_e4m3", scales="ue8m0", hidden=129),
                                "view"),
    "padded_replicas": (dict(replicas=2), "calls"),
    "packed_replicas_at_combine": (dict(replicas=2, layout="expert_packed", alignment=4, weights="at_combine"), "phases"),
    "token_major_replicas": (dict(replicas=2, layout="token_major"), "view"),
    "padded_quantised": (dict(dispatch_dtype="f8_e4m3", scales="f32", quantise="largest", hidden=136), "calls"),
    "packed_quantised_to_powers_of_two": (dict(layout="expert_packed", dispatch_dtype="f8_e4m3", scales="f32",
                                               quantise="power_of_two", hidden=384), "phases"),
    "token_major_quantised_to_ue8m0": (dict(layout="token_major", dispatch_dtype="f8_e4m3", scales="ue8m0",
                                            quantise="power_of_two", hidden=130), "view"),
    "few_experts": (dict(num_experts=3, topk=2, layout="expert_packed"), "calls"),
}


def case_of(name, num_ranks):
    fields, form = FORMS[name]
    return Case(**{"num_ranks": num_ranks, "num_experts": 2 * num_ranks + 1, "topk": 3, **fields}), form


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
@pytest.mark.parametrize("name", FORMS)
def test_gives_the_reference_s_bits_between_threads(name, num_ranks):
    run_threads(num_ranks, run_case, *case_of(name, num_ranks))


@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_gives_the_reference_s_bits_between_processes(num_ranks):
    run_processes(num_ranks, run_cases, [case_of(name, num_ranks) for name in FORMS])


@pytest.mark.parametrize("scales, quantise", [("f32", "largest"), ("f32", "power_of_two"), ("ue8m0", "power_of_two")])
def test_quantises_as_documented_whatever_x_holds(scales, quantise):
    case = Case(num_ranks=1, num_experts=1, topk=1, hidden=300, max_tokens=64, dispatch_dtype="f8_e4m3", scales=scales,
                quantise=quantise)
    random = np.random.default_rng(5)
    x = random.integers(0, 1 << 16, (64, 300)).astype(np.uint16)
    sizes = random.integers(0x00, 0xFF, (32, 300)) // 8 * 8  # Of numbers of one size in a block.
    x[:32] = (x[:32] & 0x807F) | sizes.astype(np.uint16)[:, :1] << 7
    x[7] = 0
    expected_x, expected_scales = reference.quantise(case, x)

    def job(communicator):
        place = place_of(communicator)
        with moeway.AllToAll(communicator, **case.config()) as all_to_all:
            _, output = all_to_all.dispatch(place.put(x), place.put(np.zeros((64, 1), np.int32)),
                                            place.put(np.ones((64, 1), np.float32)))
            assert (place.get(output.x)[0] == expected_x).all()
            assert (place.get(output.scales)[0] == expected_scales).all()

    run_threads(1, job)


def test_the_number_of_tokens_may_stand_in_memory():
    case, _ = case_of("padded_bf16", 2)

    def job(communicator):
        place = place_of(communicator)
        with moeway.AllToAll(communicator, num_experts=5, topk=1, hidden=3, max_tokens=4, dispatch_dtype="f32",
                             row_dtype="f32", output_dtype="f32") as all_to_all:
            x = place.put(np.arange(12, dtype=np.float32).reshape(4, 3) + communicator.rank)
            one, idx = place.put(np.ones((4, 1), np.float32)), place.put(np.array([[0], [4], [0], [99]], np.int32))
            for number, count in enumerate((3, 1, 0, 2)):
                word = place.put(np.full(() if number % 2 else (1,), count, np.int32))
                routing, output = all_to_all.dispatch(x, idx, one, num_tokens=word)
                y = place.put(np.full((4, 3), 7, np.float32))
                assert all_to_all.combine(routing, output.x, y=y) is y
                assert (y[:count] == x[:count]).all() and (y[count:] == 7).all()
            if place.kind == "numpy":
                with pytest.raises(moeway.InvalidArgumentError, match="num_tokens is 5, expected 0 to 4"):
                    all_to_all.dispatch(x, idx, one, num_tokens=np.array([5], np.int32))

    run_threads(case.num_ranks, job)


def test_takes_indices_of_64_bits():
    run_threads(2, run_case, case_of("padded_bf16", 2)[0], "calls", np.int64)


@pytest.mark.skipif(ON_GPUS, reason="how CPU ranks run")
@pytest.mark.parametrize("execution", ["threads", "lanes"])
def test_execution_does_not_change_results(execution):
    case = case_of("padded_bf16", 2)[0]

    def job(communicator):
        x = np.arange(case.hidden, dtype=np.float32)[None] + communicator.rank
        idx, weights, results = np.array([[1, 4]], np.int32), np.array([[0.3, 0.9]], np.float32), []
        for how in ("fibers", execution):
            with moeway.AllToAll(communicator, num_experts=5, topk=2, hidden=case.hidden, max_tokens=1, execution=how,
                                 dispatch_dtype="f32", row_dtype="f32", output_dtype="f32", num_warps=2) as all_to_all:
                routing, output = all_to_all.dispatch(x, idx, weights)
                results.append(all_to_all.combine(routing, output.x / 3))
        assert (results[0] == results[1]).all()

    run_threads(2, job)


@pytest.mark.parametrize("layout", ["expert_padded", "expert_packed"])
@pytest.mark.parametrize("weights", ["at_dispatch", "at_combine"])
def test_gradients_are_made_of_a_dispatch_and_an_unweighted_combine(layout, weights):
    """y[t] = sum of w[t, k] * f(x[t], expert): the gradients as docs/training.md makes them, against finite numbers."""
    experts, topk, hidden, most = 5, 2, 6, 4
    shape = dict(num_experts=experts, topk=topk, max_tokens=most, dispatch_dtype="f32", row_dtype="f32",
                 output_dtype="f32", layout=layout, weights=weights)
    at_dispatch = weights == "at_dispatch"

    def rows_of(output, all_to_all):
        """(row in x taken as [rows, H], expert, token's k), of every row."""
        for local in range(all_to_all.sizes.num_local_experts):
            for i in range(int(output.num_rows[local])):
                row = int(output.first_row[local]) + i
                yield row, all_to_all.sizes.first_local_expert + local, int(output.row_source.reshape(-1, 3)[row, 2])

    def job(communicator):
        random = np.random.default_rng(communicator.rank)
        num_tokens = most - communicator.rank
        x, grad_y = (random.integers(-3, 4, (num_tokens, hidden)).astype(np.float32) for _ in range(2))
        idx = np.stack([random.permutation(experts)[:topk] for _ in range(num_tokens)]).astype(np.int32)
        idx[0, 1] = -1
        w = random.integers(1, 5, idx.shape).astype(np.float32) / 4
        small = {**shape, "weights": "at_dispatch"}
        with moeway.AllToAll(communicator, hidden=hidden, **shape) as values, \
                moeway.AllToAll(communicator, hidden=topk, **small) as weights_object:
            # Forward: expert e squares its rows and multiplies them by e + 1.
            routing, output = values.dispatch(x, idx, w if at_dispatch else None)
            kept = np.zeros((output.x.size // hidden, hidden), np.float32)
            for row, expert, _ in rows_of(output, values):
                kept[row] = output.x.reshape(-1, hidden)[row]
            rows = np.zeros_like(kept)
            for row, expert, _ in rows_of(output, values):
                rows[row] = (expert + 1) * kept[row] ** 2
            values.combine(routing, rows.reshape(output.x.shape), None if at_dispatch else w)
            for _ in range(3):  # Other layers.
                values.dispatch(grad_y[:1], idx[:1, ::-1].copy(), w[:1] if at_dispatch else None)

            backward = values.allocate_output(row_weight=at_dispatch)
            routing, _ = values.dispatch(grad_y, idx, w if at_dispatch else None, output=backward)
            taken = weights_object.allocate_output()
            weights_routing, _ = weights_object.dispatch(w, idx, w, output=taken)
            assert (backward.num_rows == output.num_rows).all() and (taken.num_rows == output.num_rows).all()
            grad_rows, dots = np.zeros_like(kept), np.zeros((len(kept), topk), np.float32)
            for row, expert, k in rows_of(output, values):
                weight = taken.x.reshape(-1, topk)[row, k]
                if at_dispatch:
                    assert backward.row_weight.reshape(-1)[row] == weight
                at_row = backward.x.reshape(-1, hidden)[row]
                grad_rows[row] = weight * at_row * 2 * (expert + 1) * kept[row]
                dots[row, k] = at_row @ rows[row]
            grad_x = values.combine(routing.unweighted(), grad_rows.reshape(output.x.shape))
            grad_w = weights_object.combine(weights_routing.unweighted(), dots.reshape(taken.x.shape))

        here = idx >= 0
        factors = np.where(here, idx + 1, 0).astype(np.float32)
        assert (grad_x == ((w * factors).sum(1)[:, None] * 2 * x * grad_y)).all()
        assert (grad_w == factors * ((x ** 2 * grad_y).sum(1)[:, None])).all()

    run_threads(3, job)


def test_rounds_of_two_objects_interleave():
    case, _ = case_of("padded_bf16", 2)

    def job(communicator):
        config = dict(num_experts=5, topk=1, hidden=3, max_tokens=2, dispatch_dtype="f32", row_dtype="f32",
                      output_dtype="f32")
        first, second = moeway.AllToAll(communicator, **config), moeway.AllToAll(communicator, **config)
        place = place_of(communicator)
        x = place.put(np.full((2, 3), 1 + communicator.rank, np.float32))
        one, idx = place.put(np.ones((2, 1), np.float32)), place.put(np.array([[0], [4]], np.int32))
        routings = [a.dispatch_send(factor * x, idx, one) for a, factor in ((first, 1), (second, 2))]
        outputs = [a.dispatch_recv(r) for a, r in zip((first, second), routings)]
        for a, routing, output in reversed(list(zip((first, second), routings, outputs))):
            a.combine_send(routing, output.x)
        for a, routing, factor in zip((first, second), routings, (1, 2)):
            assert (a.combine_recv(routing) == factor * x).all()

    run_threads(case.num_ranks, job)
