"""Non-negative least squares on relative residuals, robust against single bad runs. Knows numbers only.

Times add up from parts that cannot be negative, and a run of 10 ms matters as much as one of 100 ms: each row is
divided by what was measured. With a handful of columns every set of non-zero ones is tried: the result is exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
    Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

_ROUNDS = 4
_HUBER = 1.345
_LEAST_SCALE = 0.005


@dataclass(frozen=True, slots=True)
class LinearFit:
    """coefficients: one for each column. errors: relative error of each row. left_out: the same when it was not fitted.

    deviations: standard error of each coefficient over its value; infinite where the rows cannot pin it down.
    """

    coefficients: tuple[float, ...]
    errors: tuple[float, ...]
    left_out: tuple[float, ...]
    deviations: tuple[float, ...]

    def at(self, row: Sequence[float]) -> float:
        """The fitted value of a row."""
        return sum(c * x for c, x in zip(self.coefficients, row, strict=True))


def fit_relative(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> LinearFit:
    """Coefficients >= 0 that bring `rows` closest to `measured`, in relative terms."""
    coefficients, weights = _robust(rows, measured)
    fitted = LinearFit(coefficients, (), (), ())
    errors = tuple(fitted.at(r) / y - 1 for r, y in zip(rows, measured, strict=True))
    return LinearFit(
        coefficients, errors, _left_out(rows, measured), _deviations(rows, measured, (coefficients, weights))
    )


def _left_out(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> tuple[float, ...]:
    """Relative error at each row of the fit to all the others."""
    out = []
    for i, (row, y) in enumerate(zip(rows, measured, strict=True)):
        others = [r for k, r in enumerate(rows) if k != i]
        if len(others) < len(row):
            return ()
        found, _ = _robust(others, [v for k, v in enumerate(measured) if k != i])
        out.append(sum(c * x for c, x in zip(found, row, strict=True)) / y - 1)
    return tuple(out)


def _robust(rows: Sequence[Sequence[float]], measured: Sequence[float]) -> tuple[tuple[float, ...], Vector]:
    import numpy as np  # noqa: PLC0415 - heavy, and only a fit needs it

    scaled = np.array([[x / y for x in row] for row, y in zip(rows, measured, strict=True)])
    weights = np.ones(len(rows))
    found = np.zeros(scaled.shape[1])
    for _ in range(_ROUNDS):
        found = _nonnegative(scaled, weights)
        residuals = np.abs(scaled @ found - 1)
        scale = max(_LEAST_SCALE, 1.48 * float(np.median(residuals)))
        weights = np.minimum(1.0, _HUBER * scale / np.maximum(residuals, 1e-12))
    return tuple(float(c) for c in found), weights


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


def _deviations(
    rows: Sequence[Sequence[float]], measured: Sequence[float], found: tuple[tuple[float, ...], Vector]
) -> tuple[float, ...]:
    """Standard error of each coefficient over its value, from the residuals' spread and the rows' geometry."""
    import numpy as np  # noqa: PLC0415 - as above

    coefficients, weights = np.array(found[0]), found[1]
    scaled = np.array([[x / y for x in row] for row, y in zip(rows, measured, strict=True)])
    free = max(1, len(measured) - int((coefficients > 0).sum()))
    variance = float((weights * (scaled @ coefficients - 1) ** 2).sum()) / free
    information = scaled.T @ (weights[:, None] * scaled)
    values, vectors = np.linalg.eigh(information)
    top = float(values[-1]) if len(values) else 0.0
    inverse = np.where(values > top * 1e-12, 1 / np.maximum(values, top * 1e-12), math.inf)
    with np.errstate(invalid="ignore"):
        spread = np.sqrt(variance * np.nansum(vectors**2 * inverse, axis=1))
    return tuple(
        float(s / c) if c > 0 and math.isfinite(s) else math.inf
        for s, c in zip(spread, coefficients, strict=True)
    )
