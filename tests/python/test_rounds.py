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
