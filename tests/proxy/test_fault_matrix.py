"""A few cells of the fault matrix on real processes; `python -m tests.bench.fault_matrix` shows all of it."""

from __future__ import annotations

import pytest

from tests.bench.fault_matrix import ROWS, Seen, cell, stack_up

CELLS = (
    ("engine answers 500", "during leg 1", "ok"),
    ("200 with an error", "between legs", "ok"),
    ("kill -9 prefill", "between legs", "ok"),
    ("kill -9 decode", "before first byte", "ok"),
    ("connection reset", "mid-stream", "error event"),
)


@pytest.fixture(scope="module")
def stack():
    with stack_up() as found:
        yield found


@pytest.mark.parametrize(("row", "column", "outcome"), CELLS)
def test_nothing_is_lost_hangs_or_leaks(stack, row, column, outcome):
    stack.well()
    found = cell(stack, next(r for r in ROWS if r.name == row), column)
    assert found.outcome == outcome, found
    assert found.faults == []
    assert (found.retries > 0) == (outcome == "ok")


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (Seen(200, "abc", 3, done=True, ended=True), "ok"),
        (Seen(200, "ab", 2, done=True, ended=True), "CUT"),
        (Seen(200, "abc", 3, ended=True), "CUT"),
        (Seen(200, "abx", 3, done=True, ended=True), "WRONG TEXT"),
        (Seen(200, "ab", 3, error=True, done=True, ended=True), "error event"),
        (Seen(200, "ab", 3), "HANGS"),
        (Seen(502, ended=True), "502"),
        (Seen(ended=True), "connection lost"),
    ],
)
def test_what_a_client_saw_is_named_as_it_was(seen, outcome):
    assert seen.outcome("abc") == outcome
