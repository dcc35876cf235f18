import itertools
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.traffic.arrivals import gamma_arrivals, poisson_arrivals, trace_arrivals
from disaggc.traffic.samples import Sample, read_samples, write_sample
from disaggc.traffic.sketch import RELATIVE_ERROR, LengthSketch, bin_of, bin_upper, bin_value

lengths = st.lists(st.integers(1, 2_000_000), min_size=1, max_size=300)


@given(lengths, st.floats(0, 1))
def test_any_quantile_is_close_to_a_value_that_was_seen(values, share):
    got = LengthSketch.of(values).quantile(share)
    exact = sorted(values)[int(share * (len(values) - 1))]
    assert got == pytest.approx(exact, rel=RELATIVE_ERROR + 1e-9)


@given(lengths, lengths)
def test_merge_is_the_sketch_of_both(one, two):
    both = LengthSketch.of(one).merge(LengthSketch.of(two))
    whole = LengthSketch.of(one + two)
    assert list(both.counts) == list(whole.counts)
    assert both.mean == pytest.approx(statistics.fmean(one + two))
    assert list(both.since(LengthSketch.of(one)).counts) == list(LengthSketch.of(two).counts)


@given(st.floats(0, 3_000_000))
def test_bins_hold_their_values(value):
    position = bin_of(value)
    assert value <= bin_upper(position) * (1 + 1e-9)
    assert position == 0 or value >= bin_upper(position - 1) * (1 - 1e-9)
    assert (
        position == 0
        or position >= 337
        or bin_value(position) == pytest.approx(value, rel=RELATIVE_ERROR + 1e-9)
    )


def test_a_restart_is_not_a_negative_sketch():
    before, after = LengthSketch.of([5] * 10), LengthSketch.of([7])
    assert after.since(before).count == 1


def test_empty():
    sketch = LengthSketch()
    assert (sketch.count, sketch.mean, sketch.quantile(0.5), sketch.histogram()) == (0, 0, 0, ())
    with pytest.raises(ValueError, match="bins"):
        LengthSketch([1.0])


@pytest.mark.parametrize("cv", [0, 0.5, 1, 3])
def test_gamma_arrivals_have_their_rate_and_variation(cv):
    times = list(itertools.islice(gamma_arrivals(4.0, cv, random.Random(3)), 40_000))  # noqa: S311 - repeatable
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(0.25, rel=0.06)
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(cv, abs=0.12 * max(cv, 0.1))


def test_poisson_and_trace():
    times = list(itertools.islice(poisson_arrivals(2.0, random.Random(5)), 20_000))  # noqa: S311 - repeatable
    assert times[-1] / len(times) == pytest.approx(0.5, rel=0.03)
    assert list(itertools.islice(trace_arrivals([10.0, 12.0, 11.0]), 6)) == [0, 1, 2, 3, 4, 5]
    assert list(itertools.islice(trace_arrivals([10.0, 12.0, 11.0], scale=2), 4)) == [0, 0.5, 1, 1.5]
    for bad in (lambda: next(gamma_arrivals(0, 1, random.Random())), lambda: next(trace_arrivals([]))):  # noqa: S311 - repeatable
        with pytest.raises(ValueError, match="needs"):
            bad()


samples = st.builds(
    Sample,
    st.floats(0, 1e9),
    st.text(max_size=9),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.floats(0, 1e4),
    st.floats(0, 1e4),
    st.booleans(),
)


@given(st.lists(samples, max_size=5), st.text(max_size=30).filter(lambda t: "\n" not in t and "\r" not in t))
def test_log_round_trips_and_survives_a_cut_line(given_samples, noise):
    text = "".join(map(write_sample, given_samples))
    assert list(read_samples(text.split("\n"))) == given_samples
    assert list(read_samples([*text.split("\n"), '{"arrived_s": 1, "wor' + noise])) == given_samples
