"""Rows that no run can have had are left out, each with its reason."""

from __future__ import annotations

import csv
import math

import pytest

from tests.fidelity.points import COLUMNS, read_table
from tests.fidelity.shapes import shape_of

ROW = {
    "source": "elsewhere", "model": "deepseek-ai/DeepSeek-R1", "gpu": "H200", "n_gpus": "8", "mode": "agg",
    "p_parallel": "TP8", "isl": "1024", "osl": "1024", "concurrency": "32", "rate_rps": "inf",
    "metric": "median_tpot_ms", "value": "25", "unit": "ms",
}  # fmt: skip


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("isl", "0"), ("isl", "-1"), ("osl", "0"), ("concurrency", "0"), ("concurrency", "0.5"), ("concurrency", "1e7"),
        ("concurrency", "inf"), ("rate_rps", "-2"), ("n_gpus", "0"), ("n_gpus", "-8"), ("p_workers", "-1"),
        ("d_gpus", "1e9"),
    ],
)  # fmt: skip
def test_a_column_says_what_no_run_has(tmp_path, column, text):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows([{**ROW, column: text}, ROW])
    found = read_table(path)
    assert found.skipped == {f"column `{column}` says {text}, which no run has": 1}
    assert len(found.points) == 1


@pytest.mark.parametrize("text", ["TP0", "TP8DPA0EP0", "EP0", "DEP0", "TP0PP4"])
def test_an_engine_without_accelerators_is_not_understood(text):
    assert shape_of(text, math.nan) is None
