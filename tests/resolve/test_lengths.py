from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disaggc.resolve.lengths import constant, from_histogram, from_quantiles, from_samples
from disaggc.spec.workload import LengthHistogram, LengthQuantiles

_Z90, _Z99 = (statistics.NormalDist().inv_cdf(share) for share in (0.9, 0.99))


def test_a_number_is_a_constant() -> None:
    found = constant(1024)
    assert (found.mean, found.p50, found.p90, found.p99, found.cv) == (1024, 1024, 1024, 1024, 0)


def test_a_mean_alone_is_a_constant() -> None:
    assert from_quantiles(LengthQuantiles(mean=7.0)) == constant(7.0)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 1.5])
@pytest.mark.parametrize(
    "known", [("p50",), ("p90",), ("p99",), ("p50", "p99"), ("p50", "p90"), ("p90", "p99")]
)
def test_a_lognormal_is_recovered_from_any_of_its_figures(sigma: float, known: tuple[str, ...]) -> None:
    if known == ("p90",) and sigma > _Z90:
        pytest.skip("a p90 below the mean belongs to two lognormals")
    median = 500.0
    truth = {"p50": median, "p90": median * math.exp(_Z90 * sigma), "p99": median * math.exp(_Z99 * sigma)}
    mean = median * math.exp(sigma * sigma / 2)
    found = from_quantiles(LengthQuantiles(mean=mean, **{name: truth[name] for name in known}))
    assert found.p50 == pytest.approx(truth["p50"], rel=1e-6)
    assert found.p90 == pytest.approx(truth["p90"], rel=1e-6)
    assert found.p99 == pytest.approx(truth["p99"], rel=1e-6)
    assert found.cv == pytest.approx(math.sqrt(math.exp(sigma * sigma) - 1), rel=1e-6)


_figures = st.none() | st.floats(1, 1e6)


@given(st.floats(1, 1e6), _figures, _figures, _figures)
def test_given_figures_are_kept_and_the_rest_is_in_order(
    mean: float, p50: float | None, p90: float | None, p99: float | None
) -> None:
    ordered = sorted(value for value in (p50, p90, p99) if value is not None)
    given_ones = dict(
        zip([n for n, v in (("p50", p50), ("p90", p90), ("p99", p99)) if v is not None], ordered, strict=True)
    )
    found = from_quantiles(LengthQuantiles(mean=mean, **given_ones))
    assert found.mean == mean
    assert 0 < found.p50 <= found.p90 <= found.p99
    assert all(math.isfinite(value) for value in (found.p50, found.p90, found.p99, found.cv))
    assert found.cv >= 0
    for name, value in given_ones.items():
        assert getattr(found, name) == value


def test_a_histogram_is_uniform_within_its_bars() -> None:
    found = from_histogram(LengthHistogram(histogram={200: 1.0, 100: 1.0}))
    assert (found.mean, found.p50, found.p90, found.p99) == (100, 100, 180, 198)
    assert found.cv == pytest.approx(200 / math.sqrt(12) / 100)


def test_empty_bars_of_a_histogram_hold_no_percentile() -> None:
    found = from_histogram(LengthHistogram(histogram={10: 1.0, 1000: 0.0, 2000: 1.0}))
    assert found.p50 == 10
    assert 1000 < found.p90 < 2000


def test_samples_agree_with_the_distribution_they_come_from() -> None:
    rng = random.Random(7)  # noqa: S311 - a repeatable sample
    found = from_samples([rng.lognormvariate(6, 0.8) for _ in range(20_000)])
    assert found.mean == pytest.approx(math.exp(6 + 0.32), rel=0.03)
    assert found.p99 == pytest.approx(math.exp(6 + _Z99 * 0.8), rel=0.06)
    assert found.cv == pytest.approx(math.sqrt(math.exp(0.64) - 1), rel=0.06)


@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=50))
def test_percentiles_of_samples_are_samples(samples: list[int]) -> None:
    found = from_samples(samples)
    assert {found.p50, found.p90, found.p99} <= set(samples)
    assert found.p50 == statistics.median_low(samples)
    assert min(samples) <= found.mean <= max(samples)
