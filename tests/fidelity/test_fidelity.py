"""The scoreboard keeps what was committed, and takes rows it has never seen."""

from __future__ import annotations

import csv
import json

import pytest

from disaggc.ir.plan import Shape
from tests.fidelity.__main__ import COMMITTED, main
from tests.fidelity.asking import Asked
from tests.fidelity.claims import claim_lines
from tests.fidelity.columns import UNFITTED, board_of
from tests.fidelity.points import COLUMNS, read_table
from tests.fidelity.ratios import negative_controls
from tests.fidelity.scoreboard import scoreboard, worse
from tests.fidelity.shapes import shape_of
from tests.fidelity.subjects import subject_of

ROW = {
    "source": "elsewhere", "model": "deepseek-ai/DeepSeek-R1", "precision": "fp8", "gpu": "H200", "n_gpus": "8",
    "backend": "vllm", "mode": "agg", "p_parallel": "TP8", "isl": "1024", "osl": "1024", "concurrency": "32",
    "rate_rps": "inf", "metric": "median_tpot_ms", "value": "25", "unit": "ms", "row_id": "X1",
}  # fmt: skip


def table(tmp_path, *rows):
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_priors_and_lines_without_fits_are_no_worse_than_committed(shared_data):
    data = shared_data("data/measured/measured_dev.csv")
    committed = json.loads(COMMITTED.read_text())
    now = scoreboard(data, (), quick=True)
    assert worse({**now, "lines": {}}, {**committed, "lines": {}}) == []


def test_claims_of_the_five_node_report(shared_data):
    claims, orderings = claim_lines(shared_data("data/measured/moreh_claims.csv"))
    assert claims.figures["gated_within_10_percent_right"] == claims.figures["gated"]
    assert abs(claims.figures["1P4D over 2P3D at 1K/8K 480 (reported 1.073)"] / 1.073 - 1) < 0.03
    assert orderings.figures["orderings_right"] == orderings.figures["orderings"], orderings.missing


def test_negative_controls_are_called():
    line = negative_controls()
    assert line.figures["right"] == line.figures["controls"]


def test_four_in_five_measured_values_lie_in_the_printed_range():
    ranges = json.loads(COMMITTED.read_text())["ranges"]
    assert all(ranges[column]["all"] >= 0.8 for column in ("prior", "others", "calibrated"))


def test_a_figure_that_got_worse_is_named():
    committed = json.loads(COMMITTED.read_text())
    now = json.loads(COMMITTED.read_text())
    now["sources"]["inferencex_via_aic"]["tpot"]["prior"]["median"] *= 1.3
    assert worse(committed, committed) == []
    (found,) = worse(now, committed)
    assert "inferencex_via_aic tpot prior" in found


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": "nobody/Nothing-1B"}, "model `nobody/Nothing-1B` is unknown"),
        ({"gpu": "ABACUS"}, "accelerator `ABACUS` is unknown"),
        ({"p_parallel": "wide"}, "parallelism `wide` is not understood"),
        ({"isl": "ShareGPT"}, "not a number"),
        ({"concurrency": ""}, "neither concurrency nor rate"),
        ({"metric": "smell"}, "metric `smell` is not predicted"),
        ({"value": "n/a"}, "no positive value"),
    ],
)
def test_a_row_that_cannot_be_used_is_counted_with_its_reason(tmp_path, change, says):
    read = read_table(table(tmp_path, ROW, {**ROW, **change, "row_id": "X2"}))
    board = board_of(read.points, UNFITTED)
    skipped = board.skipped + read.skipped
    assert len(board.judged) == 1
    assert sum(skipped.values()) == 1
    assert says in next(iter(skipped))


def test_rows_of_a_new_system_get_every_column(tmp_path):
    rows = [
        {**ROW, "concurrency": str(c), "value": str(14 + c / 4), "row_id": f"X{c}"}
        for c in (1, 2, 4, 8, 16, 32, 64, 128)
    ]
    other = [{**r, "source": "third", "row_id": "Y" + r["row_id"]} for r in rows]
    board = board_of(read_table(table(tmp_path, *rows, *other)).points)
    held = [j for j in board.judged if "calibrated" in j.said]
    assert len(board.judged) == 16
    assert len(held) == 8
    assert all("others" in j.said for j in board.judged)
    before = sum(abs(j.said["prior"].value / j.measured - 1) for j in held)
    after = sum(abs(j.said["calibrated"].value / j.measured - 1) for j in held)
    assert after < 0.6 * before
    assert all(j.said["calibrated"].low <= j.measured <= j.said["calibrated"].high for j in held)


def test_the_command_says_what_is_missing(tmp_path, capsys):
    assert main(["--data", str(tmp_path / "absent.csv")]) == 2
    assert "no measured rows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "gpus", "shape"),
    [
        ("TP1DPA4EP4", 4, Shape(dp=4, ep=4)), ("TP8DPA1EP8", 8, Shape(tp=8, ep=8)), ("DEP8", 8, Shape(dp=8, ep=8)),
        ("2xTP4", float("nan"), Shape(tp=4)), ("TP16DP16EP (2 nodes)", 16, Shape(dp=16, ep=16)),
        ("EP72 (9 nodes)", 72, Shape(dp=72, ep=72)), ("TEP8", 8, Shape(tp=8, ep=8)), ("TP4PP1", 4, Shape(tp=4)),
        ("TP8", 4, None), ("wide", 8, None),
    ],
)  # fmt: skip
def test_parallelism_as_tables_write_it(text, gpus, shape):
    assert shape_of(text, gpus) == shape


def test_a_four_bit_row_reads_fewer_bytes(tmp_path):
    eight, four = read_table(table(tmp_path, ROW, {**ROW, "precision": "fp4"})).points
    times = []
    for point in (eight, four):
        subject = subject_of(point)
        times.append(Asked(subject).predicted()["tpot"].value)
    assert times[1] < times[0]
