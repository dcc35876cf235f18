from __future__ import annotations

import math

from disaggc.perf.calibration.checks import checked
from disaggc.perf.calibration.formats import read_results
from tests.perf.calibration.runs import Engine, written


def one(tmp_path, *, peak=None, **changes):
    run = {**Engine().run("decode", 1024, 256, 4), **changes}
    readings, lost = read_results([written(tmp_path, "run", run)])
    assert not lost
    kept, dropped = checked(readings, peak)
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
    kept, dropped = one(tmp_path, peak=1e-4, median_ttft_ms=5.0)
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
    assert "2.0 waves" in dropped[0]


def test_lengths_are_those_seen_not_those_asked_for(tmp_path):
    kept, _ = one(tmp_path, total_output_tokens=20 * 64)
    assert kept[0].osl == 64
