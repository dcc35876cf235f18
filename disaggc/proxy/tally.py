"""Counting on the hot path: one worker's cells of the board. No labels, no locks, no text.

Counters are added at once; times and lengths are kept until the next `digest`, which sorts them into their bins.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from disaggc.proxy.board import (
    MAX_CLASSES,
    TIME_BINS,
    Length,
    PerClass,
    Timing,
    class_cell,
    length_cell,
    timing_cell,
)
from disaggc.traffic.sketch import BINS, bin_of, bin_upper

TIME_FLOOR_S: Final = 0.00025
_PER_OCTAVE: Final = 4 / math.log(2)
_CLASS_AT: Final = class_cell(0, PerClass.REQUESTS)
_CLASS_STEP: Final = class_cell(1, PerClass.REQUESTS) - _CLASS_AT


def time_bin(seconds: float) -> int:
    """Bin of a time; four to the octave from TIME_FLOOR_S."""
    if seconds <= TIME_FLOOR_S:
        return 0
    position = int(math.log(seconds / TIME_FLOOR_S) * _PER_OCTAVE) + 1
    return position if position < TIME_BINS else TIME_BINS - 1


def time_edge(position: int) -> float:
    """Upper edge of a bin, seconds."""
    return math.inf if position >= TIME_BINS - 1 else float(TIME_FLOOR_S * 2 ** (position / 4))


_TIME_EDGES: Final = [time_edge(position) for position in range(TIME_BINS)]
_LENGTH_EDGES: Final = [bin_upper(position) for position in range(BINS)]


class Tally:
    """One worker's counters."""

    __slots__ = ("cells", "lengths", "times")

    def __init__(self, cells: memoryview[float]) -> None:
        self.cells = cells
        self.times: list[list[list[float]]] = [[[] for _ in range(Timing.SIZE)] for _ in range(MAX_CLASSES)]
        """Seconds observed since the last digest, by class and what was timed."""
        self.lengths: list[list[list[float]]] = [[[] for _ in range(Length.SIZE)] for _ in range(MAX_CLASSES)]
        """Tokens likewise."""

    def row(self, position: int) -> int:
        """Where the counters of a class start among the cells."""
        return _CLASS_AT + position * _CLASS_STEP

    def digest(self) -> None:
        """Put what was observed into the cells."""
        for position in range(MAX_CLASSES):
            for timing, times in enumerate(self.times[position]):
                if times:
                    self._put(times, timing_cell(position, timing), time_bin, edges=_TIME_EDGES)
            for length, tokens in enumerate(self.lengths[position]):
                if tokens:
                    self._put(tokens, length_cell(position, length), bin_of, edges=_LENGTH_EDGES)

    def _put(
        self, values: list[float], start: int, bin_at: Callable[[float], int], *, edges: Sequence[float]
    ) -> None:
        """Sorted, the values of a bin stand together: one logarithm a bin in use instead of one a value."""
        cells = self.cells
        cells[start + len(edges)] += sum(values)
        values.sort()
        at, count = 0, len(values)
        while at < count:
            position = bin_at(values[at])
            upto = max(at + 1, bisect_right(values, edges[position], at))
            cells[start + position] += upto - at
            at = upto
        values.clear()
