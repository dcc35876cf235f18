"""Arrival processes: when requests come, as an endless stream of times in seconds.

Pure: a seeded generator in, times out. Gamma gaps with coefficient of variation `cv` (1 = Poisson, 0 = clockwork).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence


def gamma_arrivals(rate_per_s: float, cv: float, rng: random.Random) -> Iterator[float]:
    """Times of a renewal process of that rate whose gaps have that coefficient of variation."""
    if rate_per_s <= 0 or cv < 0:
        raise ValueError("an arrival process needs a positive rate and a variation of at least 0")
    now = 0.0
    shape = 1 / cv**2 if cv else 0.0
    while True:
        now += rng.gammavariate(shape, 1 / (shape * rate_per_s)) if cv else 1 / rate_per_s
        yield now


def poisson_arrivals(rate_per_s: float, rng: random.Random) -> Iterator[float]:
    """Times of a Poisson process."""
    if rate_per_s <= 0:
        raise ValueError("an arrival process needs a positive rate")
    now = 0.0
    while True:
        now += rng.expovariate(rate_per_s)
        yield now


def trace_arrivals(times_s: Sequence[float], *, scale: float = 1.0) -> Iterator[float]:
    """The trace's own times from its first one on, again and again after one mean gap; scale 2 is twice as fast."""
    if not times_s or scale <= 0:
        raise ValueError("a trace needs at least one time and a positive scale")
    ordered = sorted(times_s)
    span = ordered[-1] - ordered[0]
    gap = span / (len(ordered) - 1) if len(ordered) > 1 and span > 0 else 1.0
    for turn in itertools.count():
        for time in ordered:
            yield (time - ordered[0] + turn * (span + gap)) / scale
