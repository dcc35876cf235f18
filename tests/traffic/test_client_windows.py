from __future__ import annotations

import random
import statistics
from itertools import pairwise

import pytest

from disaggc.traffic.client_windows import (
    WindowsError,
    describes_windows,
    drawn,
    read_periods,
    read_windows,
)

LENGTHS = '{"0": {"input_tokens": "{100: 0.25, 900: 0.75}", "output_tokens": "{7: 1.0}"}}'


def dice(seed: int = 1) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a reproducible draw


def gaps(line: str, seconds: float = 20_000) -> list[float]:
    windows = read_windows(f"{line}\n{seconds},0,0,,0,0\n")
    times = [at for at, _, _ in drawn(windows, read_periods(LENGTHS), dice(3))]
    return [b - a for a, b in pairwise(times)]


@pytest.mark.parametrize(
    ("line", "cv"),
    [
        ("0,2,1.0,Gamma,1.0,0.5", 1.0),
        ("0,2,0.5,Gamma,4.0,0.125", 0.5),
        ("0,2,2.24,Weibull,0.5,0.25", 2.24),
        ("0,2,1.0,weibull,1.0,0.5", 1.0),
    ],
)
def test_gaps_have_the_rate_and_the_variation_that_are_written(line, cv):
    found = gaps(line)
    assert statistics.fmean(found) == pytest.approx(0.5, rel=0.05)
    assert statistics.pstdev(found) / statistics.fmean(found) == pytest.approx(cv, rel=0.1)


def test_lengths_come_in_their_shares_and_no_request_outside_its_window():
    windows = read_windows("0,0,0,,0,0\n100,5,1,Gamma,1,0.2\n1100,0,0,,0,0\n")
    found = list(drawn(windows, read_periods(LENGTHS), dice()))
    assert {outputs for _, _, outputs in found} == {7}
    assert sum(inputs == 900 for _, inputs, _ in found) / len(found) == pytest.approx(0.75, abs=0.03)
    assert min(at for at, _, _ in found) > 100
    assert max(at for at, _, _ in found) < 1100


def test_a_period_without_lengths_takes_those_of_the_one_before_it():
    periods = read_periods(
        '{"0": {"input_tokens": "{5: 1}", "output_tokens": "{6: 1}"}, "50": {"input_tokens": "{}"}}'
    )
    assert [period.at_s for period in periods] == [0]
    windows = read_windows("60,5,1,Gamma,1,0.2\n70,0,0,,0,0\n")
    assert {row[1:] for row in drawn(windows, periods, dice())} == {(5, 6)}


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("0,0,0,,0,0\n", True),
        ("600,0.1,1.0,Gamma,0.9,11\n", True),
        ("timestamp,input_tokens,output_tokens\n", False),
        ("0,1,2\n", False),
        ("0,1,2,Pareto,3,4\n", False),
        ("", False),
    ],
)
def test_which_files_these_are(text, is_one):
    assert describes_windows(text) is is_one


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0,1,1,Gamma,1,1\n1,2\n", "line 2"),
        ("0,1,1,Gamma,0,1\n", "shape 0"),
        ("0,-1,1,Gamma,1,1\n", "line 1"),
    ],
)
def test_wrong_windows_are_named(text, words):
    with pytest.raises(WindowsError, match=words):
        read_windows(text)


@pytest.mark.parametrize("text", ["{", "[]", '{"soon": {}}', '{"0": 3}'])
def test_wrong_lengths_are_named(text):
    with pytest.raises(WindowsError):
        read_periods(text)


def test_a_published_client(shared_data):
    folder = "data/traces/servegen/language_m-small/"
    windows = read_windows(shared_data(f"{folder}chunk-2-trace.csv").read_text())
    periods = read_periods(shared_data(f"{folder}chunk-2-dataset.json").read_text())
    assert len(windows) == 2016
    busy = [w for w in windows if w.rate > 0]
    found = list(drawn(windows, periods, dice()))
    assert len(found) == pytest.approx(600 * sum(w.rate for w in busy), rel=0.1)
    assert all(inputs > 0 and outputs > 0 for _, inputs, outputs in found)
