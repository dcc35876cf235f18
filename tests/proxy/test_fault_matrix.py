"""A few cells of the fault matrix on real processes; `python -m tests.bench.fault_matrix` shows all of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from disaggc.routing.table import Dialect
from disaggc.simengine.faults import Kind
from tests.bench.fault_cell import Cell, cell, judge, stack_up
from tests.bench.fault_left import clear_left
from tests.bench.fault_rows import ALL_DIALECTS, ROWS
from tests.bench.fault_stack import Seen

CELLS = (
    ("engine answers 500", "during leg 1", "ok"),
    ("200 with an error", "between legs", "ok"),
    ("kill -9 prefill", "between legs", "ok"),
    ("kill -9 decode", "before first byte", "ok"),
    ("connection reset", "mid-stream", "error event"),
)


@pytest.fixture(scope="module")
def stack():
    clear_left()
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


def test_every_fault_of_the_double_is_a_row():
    armed = set()

    engine = SimpleNamespace(fault=lambda kind, **_: armed.add(kind))
    stack = SimpleNamespace(dialect=Dialect.NIXL, engines={"p0": engine, "d0": engine})
    for row in ROWS:
        if not row.name.startswith(("cable", "KV link", "no fault")) and "proxy" not in row.name:
            row.arm(stack, "between legs")
    assert armed == set(map(str, Kind))


def test_every_dialect_has_every_row_or_a_reason():
    for row in ROWS:
        assert row.dialects == ALL_DIALECTS or row.why_not, row.name
        for dialect in row.dialects:
            assert row.moments(dialect), (row.name, dialect)


def test_a_cell_whose_fault_did_not_happen_fails_and_every_figure_is_judged():
    clean = Cell(
        "no fault", "nixl", "before leg 1", "ok", 1.0, 0, pinned_blocks=0, leaked_blocks=0, running=0,
        sockets_in_proxy=0, sockets_at_engines=0, struck=True,
    )  # fmt: skip
    assert judge(clean, ROWS[0]) == []
    assert clean.text() == "ok 0/0/0"
    assert judge(replace(clean, struck=False), ROWS[0]) == ["the fault did not happen"]
    for figure in ("pinned_blocks", "leaked_blocks", "running", "sockets_in_proxy", "sockets_at_engines"):
        assert len(judge(replace(clean, **{figure: 1}), ROWS[0])) == 1
    assert replace(clean, retries=1, leaked_blocks=2, sockets_in_proxy=3, faults=["x"]).text() == (
        "ok 1/2/3 **FAIL**"
    )
