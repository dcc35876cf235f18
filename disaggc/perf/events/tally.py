"""Counting what requests saw: weighted histograms for token intervals, exact percentiles for the rest.

Knows no engine. A histogram's bins are 0.5 % wide, its mean is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

_BINS = 200.0
"""Bins to a factor of e."""
_PIECES = 16
_STEP = 0.01
"""Change of the step time within one stretch above which it is entered in pieces."""


class Histogram:
    """Positive seconds with weights."""

    __slots__ = ("bins", "count", "total")

    def __init__(self) -> None:
        self.bins: dict[int, float] = {}
        self.count = self.total = 0.0

    def add(self, value_s: float, weight: float) -> None:
        """One value, `weight` times."""
        position = int(math.log(value_s) * _BINS + 1e6)
        self.bins[position] = self.bins.get(position, 0.0) + weight
        self.count += weight
        self.total += value_s * weight

    def add_line(self, first_s: float, last_s: float, weight: float) -> None:
        """Values spread evenly between two."""
        pieces = min(_PIECES, 1 + int((last_s / first_s - 1) / _STEP))
        if pieces == 1:
            self.add((first_s + last_s) / 2, weight)
            return
        width = (last_s - first_s) / pieces
        for i in range(pieces):
            self.add(first_s + (i + 0.5) * width, weight / pieces)

    def scaled(self, factor: float) -> Histogram:
        """The same in another multiple."""
        out = Histogram()
        shift = round(math.log(factor) * _BINS)
        out.bins = {position + shift: weight for position, weight in self.bins.items()}
        out.count, out.total = self.count, self.total * factor
        return out

    @property
    def mean(self) -> float:
        """Exact mean; 0 for none."""
        return self.total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """The value below which that share lies; 0 for none."""
        rank, seen = share * self.count, 0.0
        for position in sorted(self.bins):
            seen += self.bins[position]
            if seen >= rank:
                return math.exp((position - 1e6 + 0.5) / _BINS)
        return 0.0


def quantile(ordered: Sequence[float], share: float) -> float:
    """Percentile of sorted values, interpolated between neighbours; 0 for none."""
    if not ordered:
        return 0.0
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
