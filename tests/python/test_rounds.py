"""Dispatch and combine through the package: every layout, weights mode and type, on 2, 4 and 8 ranks, bit by bit."""

import moeway
import numpy as np
import pytest
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
