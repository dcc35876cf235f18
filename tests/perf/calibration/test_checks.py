from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from disaggc.perf.calibration.checks import checked
from disaggc.perf.calibration.formats import read_results
from tests.perf.calibration.runs import Engine, written


@dataclass(frozen=True)
class Floor:
    """An engine that no run of these tests beats, unless it is told to be slower."""

    step: float = 1e-5
    token: float = 1e-7

    def least_step_s(self) -> float:
        return self.step

    def least_prompt_s(self, tokens: float) -> float:
        return self.token * tokens


def one(tmp_path, *, floor=None, **changes):
    run = {**Engine().run("decode", 1024, 256, 4), **changes}
    readings, lost = read_results([written(tmp_path, "run", run)])
    assert not lost
    kept, dropped = checked(readings, floor)
    return kept, [str(d).partition(": ")[2] for d in dropped]


def test_a_clean_run_is_kept_whole(tmp_path):
    kept, dropped = one(tmp_path)
    assert len(kept) == 1
    assert dropped == []
    assert kept[0].isl == 1024
    assert kept[0].osl == 256


def test_failed_requests_drop_the_run(tmp_path):
    kept, dropped = one(tmp_path, failed=3)
    assert kept == []
    assert dropped == ["run dropped, 3 of 20 requests failed"]


def test_mixed_units_drop_the_run(tmp_path):
    kept, dropped = one(tmp_path, median_e2el_ms=4.0)
    assert kept == []
    assert "units are mixed" in dropped[0]


def test_a_run_sent_at_once_is_no_closed_loop(tmp_path):
    kept, dropped = one(tmp_path, max_concurrency=None)
    assert kept == []
    assert "--max-concurrency" in dropped[0]


def test_a_warm_prefix_cache_shows_in_prompts_faster_than_the_peak(tmp_path):
    kept, dropped = one(tmp_path, floor=Floor(token=1e-4), median_ttft_ms=5.0)
    assert math.isnan(kept[0].ttft_s)
    assert "prefix cache" in dropped[0]


def test_the_first_wave_is_cut_where_requests_are_listed(tmp_path):
    first = [(i * 1e-3, 2.0, [0.5] * 9) for i in range(4)]
    rest = [(1 + i, 0.1, [0.02] * 9) for i in range(16)]
    rows = first + rest
    kept, dropped = one(
        tmp_path,
        start_times=[r[0] for r in rows], ttfts=[r[1] for r in rows], itls=[r[2] for r in rows],
        input_lens=[1024] * 20, output_lens=[10] * 20, errors=[""] * 20,
    )  # fmt: skip
    assert kept[0].ttft_s == 0.1
    assert kept[0].tpot_s == 0.02
    assert kept[0].osl == 10
    assert dropped == ["first 4 requests dropped, they all started at once"]


def test_too_few_waves_lose_their_first_tokens_only(tmp_path):
    kept, dropped = one(
        tmp_path, completed=8, num_prompts=8, total_input_tokens=8192, total_output_tokens=2048
    )
    assert math.isnan(kept[0].ttft_s)
    assert kept[0].tpot_s > 0
    assert kept[0].batch == 4, "all of them decode together in the first wave"
    assert "2.0 waves" in dropped[0]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"completed": 40}, "40 of 20 requests completed: the counts contradict each other"),
        ({"total_input_tokens": 0}, "does not say how many tokens"),
        ({"total_output_tokens": 1e300}, "does not say how many tokens"),
        ({"max_concurrency": 0}, "all requests were sent at once"),
        ({"max_concurrency": 1}, "not 1: units are mixed"),
        ({"failed": 20}, "20 of 20 requests failed"),
        ({"completed": 0, "failed": 20}, "no request completed"),
    ],
)
def test_counts_that_cannot_be_drop_the_run(tmp_path, changed, says):
    kept, dropped = one(tmp_path, **changed)
    assert kept == []
    assert says in dropped[-1]


def test_lengths_are_those_seen_not_those_asked_for(tmp_path):
    kept, _ = one(tmp_path, total_output_tokens=20 * 64)
    assert kept[0].osl == 64


def test_a_file_in_seconds_is_found_by_littles_law_without_knowing_the_model(tmp_path):
    run = Engine().run("decode", 1024, 256, 4)
    shrunk = {key: value / 1000 for key, value in run.items() if key.endswith("_ms")}
    kept, dropped = one(tmp_path, **shrunk)
    assert kept == []
    assert "in flight, not 4: units are mixed" in dropped[0]


def test_token_times_no_accelerator_reaches_drop_the_run_as_another_unit(tmp_path):
    floor = Floor(step=8e-3)
    times = {"median_tpot_ms": 0.03, "median_itl_ms": 0.03, "median_e2el_ms": None, "duration": None}
    kept, dropped = one(tmp_path, floor=floor, **times)
    assert kept == []
    assert "times faster than these accelerators can be" in dropped[0]


def test_tokens_faster_than_one_read_of_the_weights_were_guessed(tmp_path):
    floor = Floor(step=20e-3)
    kept, dropped = one(tmp_path, floor=floor)
    assert math.isnan(kept[0].tpot_s)
    assert math.isfinite(kept[0].ttft_s)
    assert "speculative decoding" in dropped[0]


def test_a_request_longer_than_its_run_is_in_another_unit(tmp_path):
    kept, dropped = one(tmp_path, duration=0.01, request_rate=5.0, max_concurrency=None)
    assert kept == []
    assert "units are mixed" in dropped[0]


def test_a_run_without_any_time_is_dropped(tmp_path):
    none = dict.fromkeys(
        ("median_ttft_ms", "median_tpot_ms", "median_itl_ms", "p99_itl_ms", "median_e2el_ms")
    )
    kept, dropped = one(tmp_path, **none)
    assert kept == []
    assert "no first-token time and no token time" in dropped[0]


@pytest.mark.parametrize(
    ("scale", "says"), [(1e-3, "first token too"), (1e3, "times that of reading the weights once")]
)
def test_another_unit_shows_without_duration_and_cap(tmp_path, scale, says):
    """Both times below the peak at once is no prefix cache; a token of seconds is no batch."""
    run = Engine().run("decode", 128, 256, 4)
    times = {key: value * scale for key, value in run.items() if key.endswith("_ms")}
    kept, dropped = one(tmp_path, floor=Floor(step=1e-3, token=4e-6), **{**run, **times, "duration": None})
    assert kept == []
    assert says in dropped[0]
