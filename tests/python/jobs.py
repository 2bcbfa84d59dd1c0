"""Whole rounds with every value checked: what the ranks of test_rounds.py run."""

import dataclasses

import moeway
import numpy as np
import reference
from places import place_of

PATTERN = 0x5A  # In every byte of an output before a call: what is not written must still hold it.


def _filled(place, output):
    for field in dataclasses.fields(output):
        array = getattr(output, field.name)
        if array is not None and 0 not in array.shape:
            place.fill(array, PATTERN)
    return output


def _on_host(place, output):
    return moeway.DispatchOutput(**{field.name: place.get(getattr(output, field.name))
                                    for field in dataclasses.fields(output)})


def _is_untouched(array):
    return (np.ascontiguousarray(array).view(np.uint8) == PATTERN).all()


def _strided(place, array):
    """The same values with a gap between columns and rows."""
    wide = place.zeros((array.shape[0] * 2, array.shape[1] * 2), array)
    wide[::2, ::2] = array
    return wide[::2, ::2]


def _flat(array):
    return array.reshape(-1, array.shape[-1])


def check_rows(case, batches, rank, output):
    """expert_padded and expert_packed: every row, every count, and that nothing else was written."""
    x, source = _flat(output.x), _flat(output.row_source)
    expected_first, written = 0, np.zeros(len(x), bool)
    for local, rows in enumerate(reference.rows_for(case, batches, rank)):
        first = int(output.first_row[local])
        assert output.num_rows[local] == len(rows)
        assert first == (local * output.x.shape[1] if case.layout == "expert_padded" else expected_first)
        expected_first = -(-(first + len(rows)) // case.alignment) * case.alignment
        for i, (src, token, k) in enumerate(rows):
            assert tuple(source[first + i]) == (src, token, k)
            assert (x[first + i] == batches[src].x[token]).all()
            if case.scales != "none":
                assert (_flat(output.scales)[first + i] == batches[src].scales[token]).all()
        written[first:first + len(rows)] = True
    assert _is_untouched(x[~written]) and _is_untouched(source[~written])


def check_tokens(case, batches, rank, output, x, scales):
    """token_major: every token, its routes to this rank, and that the others hold none."""
    mine = case.experts_of(rank)
    num_rows = np.zeros(len(mine), int)
    for group, batch in enumerate(batches[::case.replicas]):
        for token in range(case.max_tokens):
            row = group * case.max_tokens + token
            experts = batch.topk_idx[token] if token < len(batch.x) else np.full(case.topk, -1)
            here = np.isin(experts, mine)
            num_rows += np.bincount(experts[here] - mine.start, minlength=len(mine))
            assert (output.topk_idx[row] == np.where(here, experts - mine.start, -1)).all()
            weights = batch.topk_weights[token] if token < len(batch.x) else np.zeros(case.topk)
            assert (output.topk_weights[row] == np.where(here, weights, 0)).all()
            if here.any():
                assert (x[row] == batch.x[token]).all()
                assert scales is None or (scales[row] == batch.scales[token]).all()
    assert (output.num_rows == num_rows).all()


def expert_rows(case, rank, output):
    """What the experts make of their rows; NaN where there is none, which must not matter."""
    rows = np.full((*output.x.shape[:-1], case.hidden), np.nan, np.float32)
    flat = _flat(rows)
    for local, expert in enumerate(case.experts_of(rank)):
        here = slice(int(output.first_row[local]), int(output.first_row[local]) + int(output.num_rows[local]))
        scales = None if output.scales is None else _flat(output.scales)[here]
        flat[here] = reference.expert_factor(expert) * reference.token_values(case, _flat(output.x)[here], scales)
    return reference.encode(case.row_dtype, np.where(np.isnan(rows), np.float32(np.inf), rows))


def token_rows(case, rank, output, x, scales):
    """token_major: per received token the weighted sum over this rank's experts."""
    values = reference.token_values(case, np.asarray(x), scales)
    factors = np.array([reference.expert_factor(expert) for expert in case.experts_of(rank)] or [0], np.float32)
    here = output.topk_idx >= 0
    with np.errstate(invalid="ignore"):
        sums = (np.where(here, output.topk_weights * factors[output.topk_idx], 0).sum(1)[:, None] * values)
    return reference.encode(case.row_dtype, np.where(here.any(1)[:, None], sums, np.float32(np.inf)))


def run_case(communicator, case, form="calls", index_dtype=np.int32, num_rounds=3):
    """Rounds with different data. form: "calls" one call each, "phases" the four, "outputs" with the caller's outputs,
    "view" token_major out of the heap."""
    rank, place = communicator.rank, place_of(communicator)
    at_dispatch = case.weights == "at_dispatch"
    with moeway.AllToAll(communicator, **case.config()) as all_to_all:
        for number in range(num_rounds):
            batches = [reference.make_batch(case, r, number, index_dtype) for r in range(case.num_ranks)]
            mine = batches[rank]
            x, scales = map(place.put, mine.given)
            idx, weights = map(place.put, (mine.topk_idx, mine.topk_weights))
            if number == 2:
                x, idx = _strided(place, x), _strided(place, idx)
            given = (x, idx, weights if at_dispatch else None, scales)
            output = _filled(place, all_to_all.allocate_output(place.kind, in_heap=form == "view"))
            if form in ("phases", "view"):
                routing = all_to_all.dispatch_send(*given)
                assert all_to_all.dispatch_recv(routing, output) is output
            else:
                routing, output = all_to_all.dispatch(*given, output=output)
            received = _on_host(place, output)
            if case.layout == "token_major":
                in_place = all_to_all.view(routing) if form == "view" else (output.x, output.scales)
                tokens = [place.get(array) for array in in_place]
                check_tokens(case, batches, rank, received, *tokens)
                rows = place.put(token_rows(case, rank, received, *tokens))
            else:
                check_rows(case, batches, rank, received)
                rows = place.put(expert_rows(case, rank, received))
            weights = None if at_dispatch else weights
            expected = reference.combined(case, mine)
            if form == "phases":
                all_to_all.combine_send(routing, rows)
                y = all_to_all.combine_recv(routing, weights)
            elif form == "outputs":
                given_y = place.put(np.zeros_like(expected))
                y = all_to_all.combine(routing, rows, weights, given_y)
                assert y is given_y
            else:
                y = all_to_all.combine(routing, rows, weights)
            y = place.get(y)
            assert y.dtype == expected.dtype and y.shape == expected.shape
            assert (y == expected).all(), f"round {number}"
        stats = all_to_all.stats()
        assert stats.num_dispatches == num_rounds
        assert stats.tokens_sent <= stats.routes_sent


def run_cases(communicator, cases):
    """All of them, one after the other, on the same ranks."""
    for case, form in cases:
        run_case(communicator, case, form)
