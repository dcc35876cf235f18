from __future__ import annotations

import math

import pytest

from disaggc.perf.calibration.formats import read_results
from tests.perf.calibration.runs import Engine, written

AIPERF = {
    "input_config": {
        "endpoint": {"model_names": ["m/x"]},
        "loadgen": {"concurrency": 16, "request_count": 160},
    },
    "time_to_first_token": {"unit": "ms", "avg": 130.0, "p50": 120.0},
    "inter_token_latency": {"unit": "ms", "avg": 21.0, "p50": 20.0},
    "request_latency": {"unit": "ms", "avg": 2700.0, "p50": 2600.0},
    "input_sequence_length": {"unit": "tokens", "avg": 1000.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "request_count": {"unit": "requests", "avg": 158},
    "error_request_count": {"unit": "requests", "avg": 2},
    "request_throughput": {"unit": "requests/sec", "avg": 6.0},
}
INFERENCEX = {
    "model": "deepseek-ai/DeepSeek-R1", "hw": "h200", "tp": 8, "conc": 64, "isl": 1024, "osl": 1024,
    "disagg": "false", "median_ttft": 0.4, "median_tpot": 0.025, "median_itl": 0.024, "median_e2el": 24.0,
}  # fmt: skip


def test_aiperf_units_are_read_from_the_file(tmp_path):
    (run,), lost = read_results([written(tmp_path, "a", AIPERF)])
    assert not lost
    assert run.tool == "aiperf"
    assert run.setting.model == "m/x"
    assert (run.ttft_s, run.tpot_s, run.e2e_s) == pytest.approx((0.12, 0.02, 2.6))
    assert (run.concurrency, run.completed, run.failed, run.sent) == (16, 158, 2, 160)
    in_seconds = {**AIPERF, "time_to_first_token": {"unit": "s", "p50": 0.12}}
    (again,), _ = read_results([written(tmp_path, "b", in_seconds)])
    assert again.ttft_s == pytest.approx(run.ttft_s)


def test_inferencex_rows_are_seconds_and_nine_tenths_of_the_nominal_length(tmp_path):
    (run,), _ = read_results([written(tmp_path, "a", [INFERENCEX])])
    assert run.setting.accelerator == "h200"
    assert run.setting.shape == "tp8"
    assert run.setting.kind == "colocated"
    assert run.isl == pytest.approx(921.6)
    assert run.tpot_s == 0.025
    wide = {
        **INFERENCEX,
        "disagg": "true",
        "decode_tp": 32,
        "decode_dp_attention": "true",
        "decode_num_workers": 2,
    }
    (run,), _ = read_results([written(tmp_path, "b", [wide])])
    assert run.setting.shape == "dp32 ep32"
    assert run.setting.replicas == 2
    assert run.setting.kind == "pd"


def test_a_sweep_folder_gives_every_run_and_names_the_failed_ones(tmp_path):
    run = Engine().run("decode", 128, 64, 4)
    for i in range(3):
        written(tmp_path, f"SERVE-a/BENCH-b/run={i}", run)
    written(tmp_path, "SERVE-a/BENCH-b/summary", [run, run, run])
    written(tmp_path, "SERVE-a/BENCH-c/run=0.failure", {"error": "x"})
    readings, lost = read_results([tmp_path])
    assert len(readings) == 3
    assert [d.why for d in lost] == ["the sweep reports it as failed"]


def test_an_unbounded_rate_is_infinite_and_a_missing_cap_unknown(tmp_path):
    (run,), _ = read_results(
        [written(tmp_path, "a", {**Engine().run("decode", 8, 8, 1), "max_concurrency": None})]
    )
    assert run.rate == math.inf
    assert math.isnan(run.concurrency)
    (run,), _ = read_results(
        [written(tmp_path, "b", {**Engine().run("decode", 8, 8, 1), "request_rate": 3.5})]
    )
    assert run.rate == 3.5


def test_real_samples_of_vllm(shared_data):
    folder = shared_data("data/vllm/samples")
    readings, _ = read_results([folder / "bench_serve_pd.json", folder / "bench_serve_mono.json"])
    detailed, plain = readings
    assert detailed.requests is not None
    assert len(detailed.requests.ttfts) == 16
    assert plain.requests is None
    assert plain.rate == 10.0
    assert plain.ttft_s == pytest.approx(0.031005, rel=1e-3)
    assert detailed.osl == 16


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("median_tpot_ms", -3, "`median_tpot_ms` dropped, `-3` is below zero"),
        ("median_tpot_ms", "fast", "`median_tpot_ms` dropped, `fast` is not a number"),
        ("max_concurrency", "four", "`max_concurrency` dropped, `four` is not a number"),
        ("total_input_tokens", [1], "`total_input_tokens` dropped, `[1]` is not a number"),
        ("duration", True, "`duration` dropped, `True` is not a number"),
        ("median_ttft_ms", 10**400, "is not a number"),
    ],
)
def test_a_figure_that_cannot_be_read_is_named(tmp_path, key, value, says):
    (run,), lost = read_results([written(tmp_path, "a", {**Engine().run("decode", 8, 8, 1), key: value})])
    assert says in str(lost[0])
    assert not math.isinf(run.tpot_s)


def test_a_list_without_runs_is_named(tmp_path):
    readings, lost = read_results([written(tmp_path, "a", [])])
    assert readings == []
    assert [d.why for d in lost] == ["its list holds no run"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttfts": [0.1, "soon"]},
        {"ttfts": [0.1, -1.0]},
        {"itls": [[0.1], ["x"]]},
        {"ttfts": [0.1]},
        {"input_lens": None},
    ],
)
def test_requests_that_make_no_sense_are_left_aside_with_a_reason(tmp_path, wrong):
    detail = {"input_lens": [8, 8], "output_lens": [2, 2], "ttfts": [0.1, 0.1], "itls": [[0.1], [0.1]]}
    (run,), lost = read_results(
        [written(tmp_path, "a", {**Engine().run("decode", 8, 8, 1), **detail, **wrong})]
    )
    assert run.requests is None
    assert lost[0].what == "requests one by one dropped"
    assert math.isfinite(run.tpot_s)


def test_an_aiperf_time_without_a_unit_is_named(tmp_path):
    (run,), lost = read_results([written(tmp_path, "a", {**AIPERF, "time_to_first_token": {"p50": 120.0}})])
    assert math.isnan(run.ttft_s)
    assert "its unit `` is not one of time" in lost[0].why
