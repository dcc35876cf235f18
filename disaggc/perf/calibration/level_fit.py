"""Decode steps as the model computes them, times a level and a power of the batch: what few runs can determine.

A straight line through a, b and c needs runs far apart; the model knows the shape of the curve already (weights read
once, experts filling up, KV by the token), so that a level and a growth are left. Both are held back by how far engines
were seen to be from the model. Knows numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from disaggc.perf.calibration.outliers import left_out_of
from disaggc.perf.constants import Z90, Range
from disaggc.perf.engine_model import SLOPE_CENTRE

NAMES = ("step_miss", "batch_slope")
LEVEL, SLOPE, NOISE = 0.4, 0.15, 0.08
"""Deviations, in logarithms: of an engine's level and of its growth from the model (168 published token times of 20
kinds of decode worker), and of one run from its own engine."""
_HUBER = 1.5
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class LevelFit:
    """coefficients: the factor where growth leaves the step alone, and the power of the batch.

    errors, left_out: as in LinearFit. deviations: of the level, and of the power over what was believed of it before.
    """

    coefficients: tuple[float, ...]
    errors: tuple[float, ...]
    left_out: tuple[float, ...]
    deviations: tuple[float, ...]

    def at(self, row: Sequence[float]) -> float:
        """The step of a row (the model's step, batch)."""
        factor, power = self.coefficients
        return row[0] * factor * math.pow(max(row[1], 1.0) / SLOPE_CENTRE, power)

    def ranges(self) -> dict[str, Range]:
        """Both constants with their 80 % ranges."""
        factor, power = self.coefficients
        wide, reach = math.exp(Z90 * self.deviations[0]), Z90 * self.deviations[1] * SLOPE
        return {
            NAMES[0]: Range(factor / wide, factor, factor * wide),
            NAMES[1]: Range(power - reach, power, power + reach),
        }


def fit_level(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> LevelFit:
    """rows: (the model's step, batch). One is enough; the more there are, the less the model's own growth counts."""
    found = level_of(rows, measured)
    errors = tuple(found.at(row) / seen - 1 for row, seen in zip(rows, measured, strict=True))
    return replace(found, errors=errors, left_out=_left_out(_points(rows, measured)))


def level_of(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> LevelFit:
    """The same without what it is off by, for whoever makes many."""
    level, power, deviations = _solved(_points(rows, measured))
    return LevelFit((math.exp(level), power), (), (), deviations)


def _points(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> list[tuple[float, float]]:
    return [
        (math.log(max(batch, 1.0) / SLOPE_CENTRE), math.log(seen / step))
        for (step, batch), seen in zip(rows, measured, strict=True)
    ]


def _left_out(points: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    if len(points) < 2:
        return ()
    out = []
    for i in left_out_of(len(points)):
        x, miss = points[i]
        level, power, _ = _solved([p for k, p in enumerate(points) if k != i])
        out.append(math.expm1(level + power * x - miss))
    return tuple(out)


def _solved(points: Sequence[tuple[float, float]]) -> tuple[float, float, tuple[float, float]]:
    """(level, power, deviations) by ridge regression, a single bad run by Huber's rule."""
    centre = sum(x for x, _ in points) / len(points)
    level = power = 0.0
    a = c = 1.0
    cross = 0.0
    for _ in range(_ROUNDS):
        rows = [
            (
                min(1.0, _HUBER * NOISE / max(abs(y - level - power * (x - centre)), 1e-9)) / NOISE**2,
                x - centre,
                y,
            )
            for x, y in points
        ]
        a, c = sum(w for w, _, _ in rows) + LEVEL**-2, sum(w * x * x for w, x, _ in rows) + SLOPE**-2
        cross = sum(w * x for w, x, _ in rows)
        u, v = sum(w * y for w, _, y in rows), sum(w * x * y for w, x, y in rows)
        level, power = (
            (u * c - v * cross) / (a * c - cross * cross),
            (v * a - u * cross) / (a * c - cross * cross),
        )
    doubt = a * c - cross * cross
    # the level is stated where growth leaves it alone, which may be far from the batches that were seen
    there = min(LEVEL**2, (c + centre * (2 * cross + centre * a)) / doubt)
    return level - power * centre, power, (math.sqrt(there), math.sqrt(a / doubt) / SLOPE)
