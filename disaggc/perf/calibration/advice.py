"""Which run of the bench schedule would teach most about an engine that was fitted. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disaggc.perf.calibration.engine_fit import EngineFit
from disaggc.perf.calibration.least_squares import LinearFit
from disaggc.perf.calibration.level_fit import LevelFit
from disaggc.perf.calibration.parts import Part
from disaggc.perf.calibration.reading import Reading, RunKind
from disaggc.perf.calibration.schedule import KINDS, BenchRun

if TYPE_CHECKING:
    from disaggc.perf.calibration.least_squares import Matrix, Vector

_WORTH = 0.9
"""A run is worth its time where it brings the expected error below this share of what it is."""
_SAME = 0.1
"""Relative difference up to which a run was made already."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The run that would help most.

    before, after: expected error over the schedule without and with it; None where its part was not fitted at all.
    """

    run: BenchRun
    before: float | None = None
    after: float | None = None


def most_useful(fit: EngineFit, runs: Sequence[BenchRun], made: Sequence[Reading]) -> Advice | None:
    """The run after which the fit's own predictions of the whole schedule are least in doubt.

    made: the runs there are; none of them is advised again. What the engine is not there for is not asked of it.
    """
    best: tuple[float, Advice] | None = None
    parts = [
        (fit.part(title), [run for run in runs if run.kind == kind])
        for kind, title in (("decode", "decode step"), ("prefill", "prefill"))
        if kind in _wanted(made)
    ]
    for part, own in sorted(parts, key=lambda pair: pair[0] is not None):
        left = [run for run in own if not any(_alike(run, reading) for reading in made)]
        if part is None or isinstance(part.fit, LevelFit):
            if left:
                return Advice(_apart(part, left))
            continue
        doubt = _Doubt(part, part.fit, own)
        for run in (run for run in left if not _made(part, run)):
            after = doubt.with_run(run)
            if after > _WORTH * doubt.before:
                continue
            if best is None or doubt.before - after > best[0]:
                best = (doubt.before - after, Advice(run, doubt.before, after))
    if best is not None and best[0] > 0:
        return best[1]
    return _unasked(fit, runs, made)


def _unasked(fit: EngineFit, runs: Sequence[BenchRun], made: Sequence[Reading]) -> Advice | None:
    """The first run of a kind that the spec's schedule has and that nothing came of yet: the KV link, shared steps."""
    if not any(reading.setting.roles for reading in made):
        return None
    missing = {"pd": fit.part("kv transfer") is None, "mixed": "kappa" not in fit.single}
    wanted = [run for run in runs if run.kind in _wanted(made) and missing.get(run.kind, False)]
    left = (run for run in wanted if not any(_alike(run, reading) for reading in made))
    return next((Advice(run) for run in left), None)


def _wanted(made: Sequence[Reading]) -> set[RunKind]:
    """What the schedule of the spec asks of this engine; everything where no run says what it does there."""
    said = {role for reading in made for role in (reading.setting.roles or "").split(",")}
    known = [role for role in KINDS if role.value in said]
    return {kind for role in known or KINDS for kind in KINDS[role]}


def _alike(run: BenchRun, reading: Reading) -> bool:
    """Whether the run was made, whatever came of it. Lengths may differ a little: tokenizers do not hit them."""
    return (
        reading.setting.kind == run.kind
        and reading.concurrency == run.concurrency
        and abs(reading.isl - run.isl) <= _SAME * run.isl
    )


def _apart(part: Part | None, runs: Sequence[BenchRun]) -> BenchRun:
    """The first run, or the one farthest in batch from those there are: a level needs its growth."""
    if part is None:
        return runs[0]
    seen = [row[1] for row in part.rows]
    return max(runs, key=lambda run: min(abs(math.log(run.concurrency / max(batch, 1.0))) for batch in seen))


def _made(part: Part, run: BenchRun) -> bool:
    """Whether the part was fitted on a run like this one."""
    return any(
        all(abs(x - y) <= _SAME * max(abs(x), abs(y)) for x, y in zip(row, run.features, strict=True))
        for row in part.rows
    )


class _Doubt:
    """Expected relative error of a linear fit's predictions over the schedule, now and after one more run."""

    def __init__(self, part: Part, fit: LinearFit, runs: Sequence[BenchRun]) -> None:
        import numpy as np  # noqa: PLC0415 - heavy, and only advice needs it

        self._np, self._fit = np, fit
        self._noise = part.unexplained
        known = np.array(fit.covariance)
        self._covariance = known if np.isfinite(known).all() else self._of_rows(part)
        self._asked = np.array([self._row(run) for run in runs])
        self.before = self._mean(self._covariance)

    def with_run(self, run: BenchRun) -> float:
        """The mean after one more run of that kind: what it shares with a constant's error is known then."""
        row = self._row(run)
        shared = self._covariance @ row
        left = self._np.outer(shared, shared) / (self._noise**2 + float(row @ shared))
        return self._mean(self._covariance - left)

    def _of_rows(self, part: Part) -> Matrix:
        """Where the rows do not see every constant: they and next to nothing besides."""
        np = self._np
        rows = np.array([[x / y for x in r] for r, y in zip(part.rows, part.measured, strict=True)])
        units = np.maximum(np.sqrt((rows * rows).sum(axis=0)), 1e-300)
        scaled = rows / units
        inverse = np.linalg.inv(scaled.T @ scaled + 1e-9 * np.eye(len(units)))
        out: Matrix = self._noise**2 * inverse / np.outer(units, units)
        return out

    def _row(self, run: BenchRun) -> Vector:
        row: Vector = self._np.array(run.features) / max(self._fit.at(run.features), 1e-9)
        return row

    def _mean(self, covariance: Matrix) -> float:
        spread = (self._asked @ covariance * self._asked).sum(axis=1)
        return math.sqrt(max(0.0, float(spread.mean())))
