from __future__ import annotations

import json
import math
import os
from pathlib import Path

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
    runs = [{**Engine().run("decode", 128, 64, 4), "duration": 20.0 + i} for i in range(3)]
    for i, run in enumerate(runs):
        written(tmp_path, f"SERVE-a/BENCH-b/run={i}", run)
    written(tmp_path, "SERVE-a/BENCH-b/summary", runs)
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


RUN = Engine().run("decode", 1024, 256, 64)


def read(tmp_path, content: bytes, name: str = "x.json"):
    (tmp_path / name).write_bytes(content)
    return read_results([tmp_path / name])


def test_a_mark_at_the_start_crlf_and_several_appended_runs_are_read(tmp_path):
    """Editors add a byte-order mark; `--append-result` writes one object a line."""
    text = json.dumps(RUN)
    (marked,), lost = read(tmp_path, b"\xef\xbb\xbf" + text.encode())
    assert not lost
    assert marked.completed == 320
    other = json.dumps(Engine().run("decode", 128, 256, 8))
    (first, second), lost = read(tmp_path, f"{text}\r\n{other}".encode())
    assert not lost
    assert (first.isl, second.isl) == (1024, 128)
    assert second.name.endswith("x.json[1]")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "it is empty"),
        (json.dumps(RUN).encode()[:200], "line 1, column"),
        (bytes(range(256)) * 20, "binary"),
        (json.dumps(RUN).encode("utf-16"), "UTF-16"),
        (b"[" * 200_000, "nested too deep"),
        (b'{"completed": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (json.dumps(RUN).encode()[:-1] + b', "completed": 5}', "`completed` stands twice"),
        (json.dumps({"results": [RUN]}).encode(), "format is not one that is known"),
    ],
)
def test_a_file_that_is_no_result_says_what_it_is(tmp_path, content, says):
    readings, lost = read(tmp_path, content)
    assert not readings
    assert [d for d in lost if says in d.why], lost


def test_pipes_and_devices_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    written(tmp_path, "ok", RUN)
    readings, lost = read_results([tmp_path, Path("/dev/zero"), Path("n" * 300)])
    assert [r.name for r in readings] == [str(tmp_path / "ok.json")]
    assert [d.why for d in lost] == ["this is not a regular file"] * 2 + ["the path is too long"]


def test_a_run_that_was_given_twice_counts_once(tmp_path):
    """Under another name, by a link, or named twice: a fit would take it for two that agree."""
    first = written(tmp_path, "a", RUN)
    (tmp_path / "b.json").write_text(json.dumps(RUN, indent=1))
    (tmp_path / "c.json").symlink_to("a.json")
    (tmp_path / "loop").symlink_to(tmp_path)
    readings, lost = read_results([tmp_path, first])
    assert len(readings) == 1
    assert [d.why for d in lost] == [f"it is the same as {first}"] * 3


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("completed", "3_20", "is not a number"),
        ("completed", 320.5, "is not a whole number"),
        ("num_prompts", math.inf, "is not finite"),
        ("failed", 1e300, "is no count"),
        ("duration", 0, "is zero"),
        ("request_rate", 0, "is zero"),
        ("max_concurrency", 0.5, "less than one request"),
        ("median_tpot_ms", "12,5", "is not a number"),
        ("median_tpot_ms", "\u0661\u0662", "is not a number"),
        ("median_tpot_ms", math.inf, "is not finite"),
        ("disaggc_run", "dekode", "is none of decode"),
        ("disaggc_replicas", 0, "is zero"),
        ("disaggc_replicas", 1.5, "is not a whole number"),
        ("disaggc_shape", 8, "is not a text"),
    ],
)
def test_a_figure_that_is_none_is_noted(tmp_path, key, value, says):
    _, lost = read_results([written(tmp_path, "a", {**RUN, key: value})])
    assert [d for d in lost if key in d.what and says in d.why], lost


def test_percentiles_out_of_order_are_not_used(tmp_path):
    (run,), lost = read_results([written(tmp_path, "a", {**RUN, "p99_itl_ms": 1.0, "p99_ttft_ms": 1.0})])
    assert math.isnan(run.itl_s)
    assert math.isnan(run.itl_p99_s)
    assert math.isnan(run.ttft_s)
    assert run.tpot_s > 0
    assert len(lost) == 2
    assert all("below the median" in d.why for d in lost)


@pytest.mark.parametrize(
    "broken",
    [
        {"input_lens": [10**400] * 320},
        {"output_lens": [10**400] * 320},
        {"itls": [[math.nan] * 255] * 320},
        {"itls": [[math.inf] * 255] * 320},
        {"errors": ["refused"] * 320},
        {"start_times": [math.nan] * 320},
    ],
)
def test_requests_that_make_no_sense_leave_the_totals(tmp_path, broken):
    listed = {
        "input_lens": [1024] * 320, "output_lens": [256] * 320, "ttfts": [0.1] * 320,
        "itls": [[0.02] * 255] * 320, "start_times": [float(i) for i in range(320)], "errors": [""] * 320,
    }  # fmt: skip
    (whole,), lost = read_results([written(tmp_path, "a", {**RUN, **listed})])
    assert whole.requests is not None
    assert not lost
    (run,), lost = read_results([written(tmp_path, "b", {**RUN, **listed, **broken})])
    assert run.requests is None
    assert [d.what for d in lost] == ["requests one by one dropped"]


def test_the_batch_is_known_without_a_first_token(tmp_path):
    """A dropped first token left a batch of nothing: steps of 64 sequences were fitted as steps of none."""
    (whole,), _ = read_results([written(tmp_path, "a", RUN)])
    (run,), _ = read_results([written(tmp_path, "b", {**RUN, "median_ttft_ms": None})])
    assert run.batch == pytest.approx(whole.batch, rel=0.02)
    assert 60 < run.batch <= 64
    bare = {**RUN, "median_ttft_ms": None, "median_e2el_ms": None}
    (bare,), _ = read_results([written(tmp_path, "c", bare)])
    assert 60 < bare.batch <= 64
