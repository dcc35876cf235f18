"""Counting on the hot path: one worker's cells of the board. No labels, no locks, no text."""

from __future__ import annotations

import math

from disaggc.proxy.board import (
    TIME_BINS,
    PerClass,
    Timing,
    class_cell,
    length_cell,
    timing_cell,
)
from disaggc.traffic.sketch import BINS, bin_of

TIME_FLOOR_S = 0.00025
_PER_OCTAVE = 4 / math.log(2)
_TIMING_AT = timing_cell(0, Timing.TTFT)
_CLASS_STEP = class_cell(1, PerClass.REQUESTS) - class_cell(0, PerClass.REQUESTS)


def time_bin(seconds: float) -> int:
    """Bin of a time; four to the octave from TIME_FLOOR_S."""
    if seconds <= TIME_FLOOR_S:
        return 0
    position = int(math.log(seconds / TIME_FLOOR_S) * _PER_OCTAVE) + 1
    return position if position < TIME_BINS else TIME_BINS - 1


def time_edge(position: int) -> float:
    """Upper edge of a bin, seconds."""
    return math.inf if position >= TIME_BINS - 1 else float(TIME_FLOOR_S * 2 ** (position / 4))


class Tally:
    """One worker's counters."""

    __slots__ = ("cells",)

    def __init__(self, cells: memoryview[float]) -> None:
        self.cells = cells

    def timing(self, position: int, timing: int, seconds: float) -> None:
        """One observation of a time, for the class at that position."""
        start = _TIMING_AT + position * _CLASS_STEP + timing * (TIME_BINS + 1)
        self.cells[start + time_bin(seconds)] += 1.0
        self.cells[start + TIME_BINS] += seconds

    def length(self, position: int, length: int, tokens: int) -> None:
        """One observation of a length."""
        start = length_cell(position, length)
        self.cells[start + bin_of(tokens)] += 1.0
        self.cells[start + BINS] += tokens

    def by_class(self, position: int, cell: int, amount: float = 1.0) -> None:
        """Add to a class counter."""
        self.cells[class_cell(position, cell)] += amount
