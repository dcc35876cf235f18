"""The simulated line on made-up rows; the measured ones are read by `python -m tests.fidelity`."""

from __future__ import annotations

import csv

import pytest

from tests.fidelity.asking import Asked
from tests.fidelity.columns import calibrated
from tests.fidelity.line import Line
from tests.fidelity.points import COLUMNS, read_table
from tests.fidelity.simulated import SOURCE, Cut, load_of, simulated_line
from tests.fidelity.subjects import subject_of

ROW = {
    "source": SOURCE, "model": "DeepSeek-R1", "precision": "fp8", "gpu": "H200", "n_gpus": "16", "backend": "sglang",
    "mode": "disagg", "p_workers": "1", "p_parallel": "TP8", "p_gpus": "8", "d_workers": "1", "d_parallel": "TP8",
    "d_gpus": "8", "isl": "1024", "osl": "256", "metric": "median_tpot_ms", "unit": "ms", "nodes": "2", "note": "",
}  # fmt: skip


def asked(tmp_path, values: dict[int, float]) -> list[Asked]:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, COLUMNS, restval="")
        out.writeheader()
        for cap, value in values.items():
            out.writerow({**ROW, "concurrency": str(cap), "value": str(value), "row_id": f"R{cap}"})
    return [Asked(subject_of(point)) for point in read_table(path).points]


def simulated(tmp_path, values: dict[int, float]) -> Line:
    found = asked(tmp_path, values)
    return simulated_line(found, calibrated(found))


def test_rows_held_out_are_simulated_with_the_constants_of_the_rows_between(tmp_path):
    priors = asked(tmp_path, dict.fromkeys((1, 2, 4, 8, 16, 32, 64, 128), 10.0))
    steps = {int(a.subject.point.concurrency): 1300 * a.predicted()["tpot"].value for a in priors}
    line = simulated(tmp_path, steps)
    assert line.figures["tpot_rows"] == 4
    assert line.figures["tpot_mape"] < 0.1
    assert "ttft_rows" not in line.figures
    shifted = simulated(tmp_path, {c: v * (3 if c in {2, 8, 32, 128} else 1) for c, v in steps.items()})
    assert shifted.figures["tpot_mape"] > 0.5, "what is held out must not be fitted"


def test_a_system_with_too_few_rows_says_so(tmp_path):
    line = simulated(tmp_path, {1: 10.0, 2: 11.0})
    assert line.missing
    assert not line.figures


@pytest.mark.parametrize(
    ("cap", "requests", "whole"), [(4, 40, 40), (2000, 20_000, 20_000), (8192, 49_152, 81_920)]
)
def test_a_large_run_is_cut_where_it_is_steady(cap, requests, whole):
    assert Cut.of(cap) == Cut(requests, whole)


def test_lengths_are_the_harness_s(tmp_path):
    (one,) = asked(tmp_path, {8: 10.0})
    (stream,) = load_of(one.subject.point, 80).streams
    assert stream.isl.mean == pytest.approx(one.subject.point.isl, rel=0.01)
    assert (stream.cap, stream.requests) == (8, 80)
