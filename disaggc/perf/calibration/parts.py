"""One fit of some of an engine's constants: what it was fitted on, how far off it is, and the ranges it leaves."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from disaggc.perf.calibration.geometry import Geometry, geometry_of
from disaggc.perf.calibration.least_squares import LinearFit
from disaggc.perf.calibration.level_fit import LevelFit
from disaggc.perf.constant_bounds import incomplete, out_of_bounds
from disaggc.perf.constants import Z90, Range

DECODE = ("decode_fixed_s", "decode_per_sequence_s", "decode_per_token_s")
PREFILL = ("prefill_s", "prefill_per_token_s", "prefill_per_square_s")
TRANSFER = ("kv_setup_s", "kv_byte_s")
LEAST_NOISE = 0.03
"""Two equal runs differ by that much."""
_CERTAIN = 0.5
"""Relative standard error up to which a constant counts as pinned down."""
_OF_MEAN, _OF_MEDIAN = 1.25, 1.48
"""Deviation of a normal error over the mean and over the median of its absolute value."""
_WIDEST = 3.0
_SURELY = 3.0
"""A constant that alone explains all of a measured time cannot be larger; the time may be off by so many deviations."""


@dataclass(frozen=True, slots=True)
class Part:
    """One fit. names: the constants of its columns. runs: what it was fitted on.

    asked: rows of the bench schedule, at which predictions are to hold too. noises: least relative error of each run.
    """

    title: str
    names: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]
    measured: tuple[float, ...]
    runs: tuple[str, ...]
    fit: LinearFit | LevelFit
    asked: tuple[tuple[float, ...], ...] = ()
    noises: tuple[float, ...] = ()

    @property
    def error(self) -> float:
        """Mean absolute relative error on the runs it was fitted on."""
        return statistics.fmean(abs(e) for e in self.fit.errors)

    @property
    def left_out_error(self) -> float | None:
        """The same with each run left out in turn; None where there are too few."""
        return statistics.fmean(abs(e) for e in self.fit.left_out) if self.fit.left_out else None

    @property
    def unseen_error(self) -> float:
        """What it is off by on runs it has not seen, as far as these runs can tell."""
        return self.error if self.left_out_error is None else self.left_out_error

    @property
    def unexplained(self) -> float:
        """Standard error of one run beside the constants' own.

        A straight line's constants carry theirs, so a run that had to be predicted from far away does not count here.
        """
        errors = [abs(e) for e in self.fit.left_out or self.fit.errors]
        if isinstance(self.fit, LevelFit):
            return max(LEAST_NOISE, _OF_MEAN * statistics.fmean(errors))
        return max(LEAST_NOISE, _OF_MEDIAN * statistics.median(errors))

    def doubt(self, row: Sequence[float]) -> float:
        """Relative standard error of what the fit says of a row: its constants' own, but at least what it is off by."""
        own = self.fit.doubt(row) if isinstance(self.fit, LinearFit) else 0.0
        return max(own, self.unexplained)

    @property
    def loose(self) -> tuple[str, ...]:
        """Constants that these runs do not pin down."""
        return tuple(n for n, d in zip(self.names, self.fit.deviations, strict=True) if not d <= _CERTAIN)

    def geometry(self) -> Geometry | None:
        """How well the runs tell the constants apart; None for a level, which is held back by what was believed."""
        return geometry_of(self.names, self.rows, self.measured) if isinstance(self.fit, LinearFit) else None

    def ranges(self) -> dict[str, Range]:
        """The constants with their 80 % ranges, as a plan varies them: each on its own."""
        if isinstance(self.fit, LevelFit):
            return self.fit.ranges()
        kept = _kept(self.fit, (*self.rows, *self.asked))
        out = {}
        for i, (name, value) in enumerate(zip(self.names, self.fit.coefficients, strict=True)):
            spread = kept * math.sqrt(self.fit.covariance[i][i])
            most = self._most(i)
            if value > 0:
                width = math.exp(min(_WIDEST, Z90 * spread / value))
                out[name] = Range(value / width, value, max(value, min(value * width, most)))
            else:
                out[name] = Range(0.0, 0.0, min(Z90 * spread, most))
        return out

    def senseless(self) -> str | None:
        """What no calibration file may state of it; None where it can stand there."""
        ranges = self.ranges()
        byte = ranges.pop("kv_byte_s", None)
        if byte is not None and byte.mid > 0:
            ranges["kv_bytes_per_s"] = Range(1 / byte.high, 1 / byte.mid, 1 / byte.low)
        found = (out_of_bounds(name, given) for name, given in ranges.items())
        return next((why for why in found if why is not None), incomplete(ranges))

    def _most(self, column: int) -> float:
        """The constant at which its column alone would explain all of a measured time."""
        found = [
            (1 + _SURELY * noise) * y / row[column]
            for row, y, noise in zip(self.rows, self.measured, self.noises, strict=True)
            if row[column] > 0
        ]
        return min(found, default=0.0)


def _kept(fit: LinearFit, rows: tuple[tuple[float, ...], ...]) -> float:
    """The share of each constant's own deviation with which the predictions come out as doubtful as they are.

    Constants of one fit err against each other: what one has too much, another has too little, and their sum stays. A
    file states each on its own, so that stated whole they would make every sum more doubtful than it is. Of the rows
    the one that needs most decides.
    """
    shares = []
    for row in rows:
        apart = sum((x * x) * fit.covariance[i][i] for i, x in enumerate(row) if x)
        doubt = fit.doubt(row)
        if not math.isfinite(apart) or not math.isfinite(doubt):
            return 1.0
        if apart > 0:
            shares.append(doubt * fit.at(row) / math.sqrt(apart))
    return min(1.0, max(shares, default=1.0))
