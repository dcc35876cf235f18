"""The scoreboard keeps what was committed, and takes rows it has never seen."""

from __future__ import annotations

import copy
import csv
import json
import math

import pytest

from disaggc.ir.plan import Shape
from disaggc.perf.spread import FILE
from tests.fidelity.__main__ import COMMITTED, main
from tests.fidelity.asking import Asked, Predicted
from tests.fidelity.claims import claim_lines
from tests.fidelity.columns import UNFITTED, board_of
from tests.fidelity.points import COLUMNS, read_table
from tests.fidelity.ratios import negative_controls
from tests.fidelity.scoreboard import scoreboard
from tests.fidelity.shapes import shape_of
from tests.fidelity.subjects import subject_of
from tests.fidelity.widths import miss_of, stretched, stretches_of
from tests.fidelity.worse import worse

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
    now = scoreboard(read_table(data), (), quick=True)
    assert worse(now, committed) == []


def test_claims_of_the_five_node_report(shared_data):
    claims, orderings = claim_lines(shared_data("data/measured/moreh_claims.csv"))
    assert claims.figures["gated_within_10_percent_right"] == claims.figures["gated"]
    assert abs(claims.figures["1P4D over 2P3D at 1K/8K 480 (reported 1.073)"] / 1.073 - 1) < 0.03
    assert orderings.figures["orderings_right"] == orderings.figures["orderings"], orderings.missing


def test_negative_controls_are_called():
    line = negative_controls()
    assert line.figures["right"] == line.figures["controls"]


@pytest.mark.parametrize("column", ["prior", "others", "calibrated"])
def test_four_in_five_measured_values_of_every_kind_lie_in_the_printed_range(column):
    ranges = json.loads(COMMITTED.read_text())["ranges"][column]
    assert {k: v for k, v in ranges.items() if v < 0.8} == {}


def test_factors_and_scoreboard_come_from_the_same_rows():
    spread, board = (json.loads(path.read_text()) for path in (FILE, COMMITTED))
    assert spread["data_sha256"] == board["data"]["sha256"]


TPOT = ("sources", "inferencex_via_aic", "tpot", "prior")
BEST = (
    "lines",
    "Best ratio on priors alone, every source that measured several ratios under one load",
    "figures",
)


@pytest.mark.parametrize(
    ("at", "factor", "says"),
    [
        ((*TPOT, "median"), 1.3, "inferencex_via_aic tpot prior: median"),
        ((*TPOT, "p90"), 1.3, "inferencex_via_aic tpot prior: p90"),
        ((*TPOT, "in_range"), 0.8, "inferencex_via_aic tpot prior: in_range"),
        ((*TPOT, "rows"), 0.99, "inferencex_via_aic tpot prior: rows"),
        (("ranges", "others", "token"), 0.8, "ranges others: token in_range"),
        ((*BEST, "dstack_pd_ratio_best_right"), 0.8, "dstack_pd_ratio_best_right"),
        ((*BEST, "dstack_pd_ratio_mean_regret"), 2.0, "dstack_pd_ratio_mean_regret"),
        (TPOT, None, "inferencex_via_aic tpot prior: gone"),
        (TPOT[:2], None, "inferencex_via_aic tpot prior: gone"),
        (BEST, None, "Best ratio on priors alone"),
    ],
)
def test_a_figure_that_got_worse_or_is_gone_is_named(at, factor, says):
    committed = json.loads(COMMITTED.read_text())
    now = copy.deepcopy(committed)
    *folders, name = at
    there = now
    for folder in folders:
        there = there[folder]
    if factor is None:
        del there[name]
    else:
        there[name] *= factor
    assert worse(committed, committed) == []
    assert any(says in line for line in worse(now, committed))


def test_lines_that_need_fits_are_missed_only_where_there_are_fits():
    committed = json.loads(COMMITTED.read_text())
    first, *others = committed["lines"]
    now = {**committed, "lines": {first: committed["lines"][first]}}
    assert len(worse(now, committed)) >= len(
        [name for name in others if "figures" in committed["lines"][name]]
    )
    plain = copy.deepcopy(now)
    for quantities in plain["sources"].values():
        for columns in quantities.values():
            columns.pop("calibrated", None)
    assert worse(plain, committed) == []


def test_of_another_table_only_what_both_have_is_compared():
    committed = json.loads(COMMITTED.read_text())
    assert (
        worse({**committed, "data": {"rows": 1, "sha256": ""}, "sources": {}, "lines": {}}, committed) == []
    )


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


HEADER = ",".join(COLUMNS)
LINE = ",".join(ROW.get(c, "") for c in COLUMNS)


@pytest.mark.parametrize("command", [[], ["--spread"], ["--check"], ["--quick"]])
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no measured rows at"),
        (b"", "it is empty"),
        (f"{HEADER}\n".encode(), "no row below its header"),
        (b"\x7fELF\x00\xff\xfe\x01" * 9, "not a CSV file in UTF-8"),
        (f"{HEADER}\n{LINE}\n".replace("value", "worth").encode(), "does not name the columns value"),
        (f"{HEADER}\n{LINE}\n".replace("isl", "in").replace("gpu", "card").encode(), "the columns gpu, isl"),
    ],
)
def test_the_command_says_what_is_wrong_with_a_file(tmp_path, capsys, content, says, command):
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_bytes(content)
    before = FILE.read_bytes()
    assert main(["--data", str(path), *command]) == 2
    seen = capsys.readouterr()
    assert says in seen.err
    assert seen.out == ""
    assert FILE.read_bytes() == before


def test_a_folder_and_rows_that_all_cannot_be_used_are_no_success(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tests.fidelity.__main__.extra_lines", lambda: ())
    assert main(["--data", str(tmp_path)]) == 2
    assert "directory" in capsys.readouterr().err.lower()
    strange = table(tmp_path, {**ROW, "model": "nobody/Nothing-1B"})
    before = FILE.read_bytes()
    for command in ([], ["--spread"]):
        assert main(["--data", str(strange), "--jobs", "1", *command]) == 2
        assert "can be judged" in capsys.readouterr().err
    assert FILE.read_bytes() == before


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


PD = {
    **ROW, "model": "gpt-oss-120b", "precision": "mxfp4", "mode": "disagg", "p_workers": "2", "d_workers": "2",
    "p_parallel": "TP2", "d_parallel": "TP2", "p_gpus": "4", "d_gpus": "4", "isl": "2048", "osl": "128",
}  # fmt: skip
AGAIN = "500 reqs; CAUTION: same random prompts ran at conc=128 first, SGLang radix cache on -> prefill partly cached"


@pytest.mark.parametrize(
    ("change", "hit"),
    [
        ({"concurrency": "128", "note": "500 reqs"}, 0.0),
        ({"concurrency": "64"}, 0.5),  # one earlier run, each prompt to one of two replicas
        ({"concurrency": "32"}, 0.75),
        ({"concurrency": "32", "p_workers": "1", "p_gpus": "2"}, 1.0),
        ({"concurrency": "32", "isl": "32784"}, 0.0),  # 500 of them are more than a replica holds
    ],
)
def test_prompts_that_ran_before_are_cached_as_the_table_warns(tmp_path, change, hit):
    (point,) = read_table(table(tmp_path, {**PD, "note": AGAIN, **change})).points
    assert subject_of(point).service.classes[0].prefix_hit == pytest.approx(hit, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "requests"),
    [
        ({"note": "x.json; num_prompts=2560"}, 2560), ({"note": "500 reqs, EOS not ignored"}, 500),
        ({"source": "inferencex_via_aic"}, 320), ({}, None),
    ],
)  # fmt: skip
def test_a_run_is_as_long_as_the_table_says(tmp_path, change, requests):
    (point,) = read_table(table(tmp_path, {**ROW, **change})).points
    assert Asked(subject_of(point)).case.requests == requests


def test_runs_of_two_lengths_are_two_points(tmp_path):
    rows = [{**ROW, "note": f"num_prompts={n}", "row_id": f"N{n}"} for n in (32, 320)]
    short, long = read_table(table(tmp_path, *rows)).points
    values = [Asked(subject_of(p)).predicted()["rps"].value for p in (short, long)]
    assert values[0] < values[1]


def test_a_checkpoint_loaded_by_its_name_has_its_own_precision(tmp_path):
    one = {
        **ROW,
        "model": "Qwen/Qwen3.5-397B-A17B",
        "precision": "fp8",
        "source": "inferencex_token_position",
    }
    other = {**one, "source": "elsewhere", "row_id": "X2"}
    own, stated = (subject_of(p).service.model for p in read_table(table(tmp_path, one, other)).points)
    assert own.weight_bytes == pytest.approx(2 * stated.weight_bytes, rel=0.05)


def test_factors_hold_what_the_sources_they_come_from_need():
    said = Predicted(1.0, 0.8, 1.25)
    misses = [miss_of(f"s{k}", "tpot", math.exp(0.3 * k), said) for k in range(-2, 3) for _ in range(20)]
    by = stretches_of([m for m in misses if m is not None])
    wide = stretched(said, "tpot", by)
    assert wide.low <= math.exp(-0.6)
    assert wide.high >= math.exp(0.6)
    assert stretched(said, "ttft_p50", by) == said
