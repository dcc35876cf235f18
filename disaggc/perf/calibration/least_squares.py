"""Non-negative least squares on relative residuals, robust against single bad runs. Knows numbers only.

Times add up from parts that cannot be negative, and a run of 10 ms matters as much as one of 100 ms: each row is
divided by what was measured. With a handful of columns every set of non-zero ones is tried: the result is exact.
What was believed before anything was measured stands beside the runs as further rows, as weak as the belief.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disaggc.perf.calibration.outliers import left_out_of

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
    Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

_ROUNDS = 4
_HUBER = 1.345
_LEAST_SCALE = 0.005
_TELLING = 2
"""Runs beyond the constants from which their scatter says how far off one run is."""
_BLIND = 1e-9
"""Share of the largest singular value, columns at equal length, from which rows do not see a direction at all."""


@dataclass(frozen=True, slots=True)
class Believed:
    """A row whose value is not measured but believed, `deviation` being its standard error in relative terms."""

    row: tuple[float, ...]
    value: float
    deviation: float


@dataclass(frozen=True, slots=True)
class LinearFit:
    """coefficients: one for each column. errors: relative error of each row. left_out: the same when it was not fitted.

    deviations: standard error of each coefficient over its value; infinite where nothing pins it down, and where it is
    zero. covariance: of the coefficients, in their own units; infinite where the rows do not see them all.
    """

    coefficients: tuple[float, ...]
    errors: tuple[float, ...]
    left_out: tuple[float, ...]
    deviations: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...] = ()

    def at(self, row: Sequence[float]) -> float:
        """The fitted value of a row."""
        return sum(c * x for c, x in zip(self.coefficients, row, strict=True))

    def doubt(self, row: Sequence[float]) -> float:
        """Standard error of the fitted value of a row over that value; errors of the coefficients that cancel do so."""
        value = self.at(row)
        used = [(i, x) for i, x in enumerate(row) if x]
        variance = sum(x * y * self.covariance[i][k] for i, x in used for k, y in used)
        return math.sqrt(max(0.0, variance)) / value if value > 0 and math.isfinite(variance) else math.inf


def fit_relative(
    rows: Sequence[Sequence[float]],
    measured: Sequence[float],
    *,
    noise: Sequence[float] | float = 0.0,
    believed: Sequence[Believed] = (),
) -> LinearFit:
    """Coefficients >= 0 that bring `rows` closest to `measured`, in relative terms.

    noise: relative error that a measured value has at least, one for all or one for each row.
    """
    noises = [noise] * len(rows) if isinstance(noise, float) else list(noise)
    known = [*zip(rows, measured, noises, strict=True)]
    coefficients, weights, scatter = _robust(known, believed)
    fitted = LinearFit(coefficients, (), (), ())
    errors = tuple(fitted.at(r) / y - 1 for r, y in zip(rows, measured, strict=True))
    covariance = _covariance(known, believed, (coefficients, weights))
    deviations = tuple(
        math.sqrt(line[i]) / c if c > 0 else math.inf
        for i, (line, c) in enumerate(zip(covariance, coefficients, strict=True))
    )
    return LinearFit(coefficients, errors, _left_out(known, believed, scatter), deviations, covariance)


def line_of(
    rows: Sequence[Sequence[float]], measured: Sequence[float], *, noise: float, believed: Sequence[Believed]
) -> LinearFit:
    """The coefficients alone, for whoever makes many."""
    known = [(row, y, noise) for row, y in zip(rows, measured, strict=True)]
    return LinearFit(_robust(known, believed)[0], (), (), ())


_Known = tuple[Sequence[float], float, float]
"""A row, its value, and the value's least relative error."""


def _left_out(known: Sequence[_Known], believed: Sequence[Believed], scatter: float) -> tuple[float, ...]:
    """Relative error at each row of the fit to all the others. scatter: of one run, as all of them show it."""
    out = []
    for i in left_out_of(len(known)):
        row, y, _ = known[i]
        others = [each for k, each in enumerate(known) if k != i]
        if len(others) < len(row):
            return ()
        found, _, _ = _robust(others, believed, scatter)
        out.append(sum(c * x for c, x in zip(found, row, strict=True)) / y - 1)
    return tuple(out)


def _sharpness(known: Sequence[_Known]) -> list[float]:
    """Weight of each row from its noise; 1 for the sharpest."""
    least = min((n for _, _, n in known), default=0.0)
    return [1.0 if n <= 0 else (least / n) ** 2 for _, _, n in known]


def _robust(
    known: Sequence[_Known], believed: Sequence[Believed], scatter: float | None = None
) -> tuple[tuple[float, ...], Vector, float]:
    """(coefficients, weight of each run, relative scatter of one run). scatter: where it is known already."""
    import numpy as np  # noqa: PLC0415 - heavy, and only a fit needs it

    scaled = np.array([[x / y for x in row] for row, y, _ in known])
    expected = np.array([[x / b.value for x in b.row] for b in believed]).reshape(-1, scaled.shape[1])
    sharp = np.array(_sharpness(known))
    belief = np.array([1 / b.deviation for b in believed])
    free = len(known) - scaled.shape[1]
    telling = scatter is None and free >= _TELLING
    scatter = scatter or max(_LEAST_SCALE, min(n for _, _, n in known))
    weights = sharp
    found = np.zeros(scaled.shape[1])
    for _ in range(_ROUNDS):
        faint = (scatter * belief) ** 2
        found = _nonnegative(np.vstack((scaled, expected)), np.concatenate((weights, faint)))
        residuals = np.abs(scaled @ found - 1) * np.sqrt(sharp)
        scale = max(_LEAST_SCALE, 1.48 * float(np.median(residuals)))
        weights = sharp * np.minimum(1.0, _HUBER * scale / np.maximum(residuals, 1e-12))
        if telling:  # runs that agree so well with each other outweigh a belief the more
            scatter = scale * math.sqrt(len(known) / free)
    return tuple(float(c) for c in found), weights, scatter


def _nonnegative(scaled: Matrix, weights: Vector) -> Vector:
    """The best of all sets of columns whose free solution is not negative."""
    import numpy as np  # noqa: PLC0415 - as above

    root = np.sqrt(weights)
    left, right = scaled * root[:, None], root
    units = np.maximum(np.sqrt((left * left).sum(axis=0)), 1e-300)
    columns = range(scaled.shape[1])
    best, best_loss = np.zeros(len(columns)), math.inf
    for size in range(len(columns), 0, -1):
        for chosen in itertools.combinations(columns, size):
            part = left[:, chosen] / units[list(chosen)]
            solution, *_ = np.linalg.lstsq(part, right, rcond=None)
            loss = float(((part @ solution - right) ** 2).sum())
            if (solution >= 0).all() and loss < best_loss * (1 - 1e-9):
                best = np.zeros(len(columns))
                best[list(chosen)] = solution / units[list(chosen)]
                best_loss = loss
    return best


def _covariance(
    known: Sequence[_Known], believed: Sequence[Believed], found: tuple[tuple[float, ...], Vector]
) -> tuple[tuple[float, ...], ...]:
    """From the residuals' spread, but at least the stated noise, and the rows' geometry.

    Columns are brought to equal length first: beside squares of tokens a constant would vanish in rounding.
    """
    import numpy as np  # noqa: PLC0415 - as above

    coefficients, weights = np.array(found[0]), found[1]
    scaled = np.array([[x / y for x in row] for row, y, _ in known])
    free = max(1, len(known) - int((coefficients > 0).sum()))
    spread = float((weights * (scaled @ coefficients - 1) ** 2).sum()) / free
    variance = max(spread, min(n for _, _, n in known) ** 2, 1e-18)
    expected = np.array([[x / b.value / b.deviation for x in b.row] for b in believed])
    seen = scaled * np.sqrt(weights / variance)[:, None]
    whole = np.vstack((seen, expected.reshape(-1, scaled.shape[1])))
    units = np.maximum(np.sqrt((whole * whole).sum(axis=0)), 1e-300)
    _, values, directions = np.linalg.svd(whole / units, full_matrices=True)
    values = np.pad(values, (0, len(units) - len(values)))
    blind = values <= values[0] * _BLIND
    inverse = np.where(blind, 0.0, 1 / np.maximum(values, 1e-300) ** 2)
    spread_out = (directions.T * inverse) @ directions / np.outer(units, units)
    hidden = (np.abs(directions[blind]) > _BLIND).any(axis=0)
    out = np.where(np.logical_or.outer(hidden, hidden), np.inf, spread_out)
    return tuple(tuple(float(c) for c in line) for line in out)
