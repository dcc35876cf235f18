"""Token-length distributions as five figures, whatever form the spec gives them in. Knows no files.

A number is a constant. Moments are completed by a lognormal, the shape of measured prompt and answer lengths. A
histogram is uniform within its bars.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from disaggc.resolve.model import Lengths
from disaggc.spec.workload import LengthHistogram, LengthQuantiles

_Z = {"p90": 1.2815515655446004, "p99": 2.3263478740408408}
_WIDEST = 2.5
"""Largest sigma of a fit: a coefficient of variation of 22, beyond anything measured."""


def constant(tokens: float) -> Lengths:
    """Every request has this length."""
    return Lengths(tokens, tokens, tokens, tokens, 0.0)


def from_quantiles(given: LengthQuantiles) -> Lengths:
    """Mean and percentiles as given, the missing ones and the variation from the lognormal that fits them best."""
    if given.p50 is None and given.p90 is None and given.p99 is None:
        return constant(given.mean)
    sigma = min(_sigma(given), _WIDEST)
    median = given.p50 if given.p50 is not None else given.mean * math.exp(-sigma * sigma / 2)
    p50 = median
    p90 = given.p90 if given.p90 is not None else median * math.exp(_Z["p90"] * sigma)
    p99 = given.p99 if given.p99 is not None else median * math.exp(_Z["p99"] * sigma)
    if given.p99 is not None:
        p90 = min(p90, p99)
    p50 = min(p50, p90)
    p99 = max(p99, p90)
    return Lengths(given.mean, p50, p90, p99, math.sqrt(math.expm1(sigma * sigma)))


def _sigma(given: LengthQuantiles) -> float:
    """Log-scale spread: from the widest pair of figures that determine it."""
    tail = ("p99", given.p99) if given.p99 is not None else ("p90", given.p90)
    name, value = tail
    if value is not None and given.p50 is not None:
        return max(0.0, math.log(value / given.p50) / _Z[name])
    if value is not None:
        z, ratio = _Z[name], math.log(value / given.mean)
        return max(0.0, z - math.sqrt(max(0.0, z * z - 2 * ratio))) if ratio > 0 else 0.0
    ratio = math.log(given.mean / given.p50) if given.p50 is not None else 0.0
    return math.sqrt(2 * ratio) if ratio > 0 else 0.0


def from_histogram(given: LengthHistogram) -> Lengths:
    """Figures of a histogram: upper bound in tokens -> weight; at least one weight is positive."""
    bars = _bars(given.histogram)
    total = math.fsum(weight for _, _, weight in bars)
    mean = math.fsum(weight * (low + high) / 2 for low, high, weight in bars) / total
    square = (
        math.fsum(weight * (low * low + low * high + high * high) / 3 for low, high, weight in bars) / total
    )
    spread = math.sqrt(max(0.0, square - mean * mean))
    p50, p90, p99 = (_within(bars, share * total) for share in (0.5, 0.9, 0.99))
    return Lengths(mean, p50, p90, p99, spread / mean)


def _bars(histogram: Mapping[int, float]) -> list[tuple[float, float, float]]:
    bars: list[tuple[float, float, float]] = []
    low = 0.0
    for bound in sorted(histogram):
        bars.append((low, float(bound), histogram[bound]))
        low = float(bound)
    return bars


def _within(bars: Sequence[tuple[float, float, float]], rank: float) -> float:
    seen = 0.0
    for low, high, weight in bars:
        if weight > 0 and seen + weight >= rank:
            return low + (high - low) * max(0.0, rank - seen) / weight
        seen += weight
    return bars[-1][1]


def from_samples(samples: Sequence[float]) -> Lengths:
    """Figures of recorded lengths, at least one; percentiles by nearest rank."""
    ordered = sorted(samples)
    mean = math.fsum(ordered) / len(ordered)
    variance = math.fsum((value - mean) ** 2 for value in ordered) / len(ordered)
    p50, p90, p99 = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.9, 0.99))
    return Lengths(mean, p50, p90, p99, math.sqrt(variance) / mean)
