"""Mergeable sketches of positive numbers with a bounded relative error: fine enough to plan from.

Log-spaced bins, 16 to the octave: any quantile is within 2.2 % of a value that was seen. Bins have fixed edges, so
sketches of several processes add up bin by bin, and differences over time are sketches too.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Final

BINS_PER_OCTAVE: Final = 16
OCTAVES: Final = 21
"""Up to two million tokens."""
BINS: Final = BINS_PER_OCTAVE * OCTAVES + 2
"""Bin 0 holds values below 1, the last one everything above the range."""
RELATIVE_ERROR: Final = 2 ** (0.5 / BINS_PER_OCTAVE) - 1

_INVERSE: Final = BINS_PER_OCTAVE / math.log(2)


def bin_of(value: float) -> int:
    """Position of the bin a value belongs to."""
    if value < 1:
        return 0
    return min(int(math.log(value) * _INVERSE) + 1, BINS - 1)


def bin_upper(position: int) -> float:
    """Upper edge of a bin, inclusive for integers below it; infinity for the last."""
    if position >= BINS - 1:
        return math.inf
    return float(2 ** (position / BINS_PER_OCTAVE))


def bin_value(position: int) -> float:
    """The value a bin stands for: its geometric middle, 0 for bin 0."""
    if position == 0:
        return 0.0
    return float(2 ** ((position - 0.5) / BINS_PER_OCTAVE))


class LengthSketch:
    """Counts by bin, with the exact sum."""

    __slots__ = ("counts", "total")

    def __init__(self, counts: Sequence[float] | None = None, total: float = 0.0) -> None:
        self.counts = array("d", counts if counts is not None else bytes(8 * BINS))
        if len(self.counts) != BINS:
            raise ValueError(f"a sketch has {BINS} bins, not {len(self.counts)}")
        self.total = total

    @classmethod
    def of(cls, values: Iterable[float]) -> LengthSketch:
        """The sketch of these values."""
        sketch = cls()
        for value in values:
            sketch.add(value)
        return sketch

    def add(self, value: float, times: float = 1.0) -> None:
        """One more value, or `times` of it."""
        self.counts[bin_of(value)] += times
        self.total += value * times

    def merge(self, other: LengthSketch) -> LengthSketch:
        """Both together."""
        return LengthSketch(
            [a + b for a, b in zip(self.counts, other.counts, strict=True)], self.total + other.total
        )

    def since(self, earlier: LengthSketch) -> LengthSketch:
        """What was added after `earlier`; a restart (counts went down) gives the whole."""
        counts = [a - b for a, b in zip(self.counts, earlier.counts, strict=True)]
        if min(counts) < 0:
            return LengthSketch(self.counts, self.total)
        return LengthSketch(counts, max(0.0, self.total - earlier.total))

    @property
    def count(self) -> float:
        """How many values."""
        return math.fsum(self.counts)

    @property
    def mean(self) -> float:
        """Exact mean; 0 for none."""
        count = self.count
        return self.total / count if count else 0.0

    def quantile(self, share: float) -> float:
        """The value below which that share lies, within RELATIVE_ERROR; 0 for none."""
        count = self.count
        if count <= 0:
            return 0.0
        rank, seen = max(share, 0.0) * (count - 1), 0.0
        for position, number in enumerate(self.counts):
            seen += number
            if number and seen > rank:
                return bin_value(position)
        return bin_value(max(i for i, n in enumerate(self.counts) if n))

    def histogram(self) -> tuple[tuple[float, float], ...]:
        """(value, weight) of every bin in use: what a planner takes as the distribution."""
        return tuple((bin_value(i), n) for i, n in enumerate(self.counts) if n)
