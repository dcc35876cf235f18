"""Drawing token lengths: fixed, uniform, or shaped by the five figures of a distribution. Knows no traffic."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from disaggc.resolve.model import Lengths

_Z90, _Z99 = 1.2815515655446004, 2.3263478740408408
_FARTHEST = 3.5
"""Normal score beyond which no length is drawn: two of ten thousand."""
_GRID = 400
_HALVINGS = 40


class LengthDraw(Protocol):
    """A distribution of lengths."""

    @property
    def mean(self) -> float:
        """Mean, tokens."""

    def draw(self, rng: random.Random) -> int:
        """One length, at least 1."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every request alike."""

    tokens: int

    @property
    def mean(self) -> float:
        """The length."""
        return float(self.tokens)

    def draw(self, rng: random.Random) -> int:  # noqa: ARG002 - the protocol's parameter
        """The length."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class Even:
    """Uniform whole numbers, both ends included."""

    low: int
    high: int

    @property
    def mean(self) -> float:
        """The middle."""
        return (self.low + self.high) / 2

    def draw(self, rng: random.Random) -> int:
        """One of them."""
        return rng.randint(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Shaped:
    """Through p50, p90 and p99 on a logarithmic scale; `below` is the spread under the median that keeps the mean."""

    lengths: Lengths
    below: float

    @classmethod
    def of(cls, lengths: Lengths) -> Shaped:
        """The shape whose mean is the given one, as near as a median and a tail leave room for it."""
        low, high = 0.0, 4.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if _mean(lengths, middle) > lengths.mean:
                low = middle
            else:
                high = middle
        return cls(lengths, (low + high) / 2)

    @property
    def mean(self) -> float:
        """Mean of what is drawn."""
        return _mean(self.lengths, self.below)

    def draw(self, rng: random.Random) -> int:
        """One length."""
        return max(1, round(_at(self.lengths, self.below, rng.gauss(0.0, 1.0))))


def _at(lengths: Lengths, below: float, z: float) -> float:
    """The length at a normal score."""
    p50, p90, p99 = (max(1.0, x) for x in (lengths.p50, lengths.p90, lengths.p99))
    z = max(-_FARTHEST, min(z, _FARTHEST))
    if z <= 0:
        return p50 * math.exp(below * z)
    if z <= _Z90:
        return p50 * math.exp(z / _Z90 * math.log(p90 / p50))
    return p90 * math.exp((z - _Z90) / (_Z99 - _Z90) * math.log(p99 / p90))


def _mean(lengths: Lengths, below: float) -> float:
    normal = NormalDist()
    scores = (normal.inv_cdf((i + 0.5) / _GRID) for i in range(_GRID))
    return sum(_at(lengths, below, z) for z in scores) / _GRID
