"""Constants that agree best with measurements and still with what was believed before, and how sure that leaves them.

Each constant is a standard normal score within its prior range. Measurements pull the scores where they say something;
a constant they say nothing about stays at its prior with its prior's range. Robust: a residual counts by Huber's rule.
Knows scores and logarithms only, no engine and no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disaggc.perf.constants import NAMES

if TYPE_CHECKING:
    import numpy as np

    Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]
    Vector = np.ndarray[tuple[int], np.dtype[np.float64]]

_STEP = 0.25
"""Score by which a constant is moved to see what depends on it."""
_ROUNDS = 5
_LARGEST = 3.0
"""Scores beyond this are not believed: five times outside the 80 % range."""
_HUBER = 1.5
_FLOOR = 0.04
"""Least relative error of one measurement: two equal runs differ by that much."""
_CEILING = 1.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """logs: measured values as logarithms. predict: scores -> predicted logarithms, in the same order.

    kinds: what each value is, so that each kind gets a spread of its own (token times are sharper than first tokens).
    """

    predict: Callable[[Mapping[str, float]], Sequence[float]]
    logs: tuple[float, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Posterior:
    """scores and deviations of each constant; 1 is the prior's own deviation, so 0.9 means "not pinned down".

    spread: relative error that is left, by kind. sensitivity: constant -> share of its prior variance removed.
    """

    scores: Mapping[str, float]
    deviations: Mapping[str, float]
    spread: Mapping[str, float]

    def known(self, name: str) -> float:
        """Share of the doubt about a constant that the measurements removed, 0 to 1."""
        return max(0.0, 1 - self.deviations[name] ** 2)


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed before: scores (0 where absent) and their deviation."""

    scores: Mapping[str, float]
    deviation: float = 1.0


PRIOR = Belief({})


def fit(measurements: Sequence[Measurement], names: Sequence[str], *, belief: Belief = PRIOR) -> Posterior:
    """The posterior of `names`; all other constants stay where they are believed to be."""
    return _Problem(measurements, names, belief).solved()


class _Problem:
    def __init__(self, measurements: Sequence[Measurement], names: Sequence[str], belief: Belief) -> None:
        import numpy as np  # noqa: PLC0415 - heavy, and only a fit needs it

        self._np = np
        self._measurements, self._names = measurements, list(names)
        self._still = {**dict.fromkeys(NAMES, 0.0), **belief.scores}
        self._centre = np.array([self._still[name] for name in names])
        self._weight = 1 / belief.deviation**2
        self._logs = np.array([value for m in measurements for value in m.logs])
        self._kinds = np.array([kind for m in measurements for kind in m.kinds])
        self._groups = sorted(set(self._kinds.tolist()))

    def _predicted(self, scores: Vector) -> Vector:
        now = {**self._still, **dict(zip(self._names, scores.tolist(), strict=True))}
        return self._np.array([value for m in self._measurements for value in m.predict(now)])

    def _slopes(self, scores: Vector, here: Vector) -> Matrix:
        columns = []
        for i in range(len(self._names)):
            moved = scores.copy()
            step = -_STEP if scores[i] > 0 else _STEP
            moved[i] += step
            columns.append((self._predicted(moved) - here) / step)
        return self._np.array(columns).T

    def _spread(self, residuals: Vector) -> dict[str, float]:
        """Robust deviation of the residuals of each kind (1.48 x median)."""
        out = {}
        for kind in self._groups:
            found = self._np.abs(residuals[self._kinds == kind])
            out[kind] = float(min(_CEILING, max(_FLOOR, 1.48 * self._np.median(found))))
        return out

    def _loss(self, scores: Vector, residuals: Vector, sigma: Vector) -> float:
        z = self._np.abs(residuals / sigma)
        huber = self._np.where(z <= _HUBER, z * z / 2, _HUBER * (z - _HUBER / 2))
        return float(huber.sum() + self._weight * ((scores - self._centre) ** 2).sum() / 2)

    def solved(self) -> Posterior:
        """Gauss-Newton with a damping that grows until a step helps."""
        np = self._np
        scores, prior = self._centre.copy(), self._weight * np.eye(len(self._names))
        here = self._predicted(scores)
        damping, precision = 1e-2, prior
        for _ in range(_ROUNDS):
            residuals = self._logs - here
            spread = self._spread(residuals)
            sigma = np.array([spread[kind] for kind in self._kinds])
            weights = np.minimum(1.0, _HUBER / np.maximum(np.abs(residuals / sigma), 1e-9)) / sigma**2
            slopes = self._slopes(scores, here)
            precision = slopes.T @ (weights[:, None] * slopes) + prior
            gradient = slopes.T @ (weights * residuals) - self._weight * (scores - self._centre)
            loss = self._loss(scores, residuals, sigma)
            for _ in range(6):
                step = np.linalg.solve(precision + damping * np.diag(np.diag(precision)), gradient)
                trial = np.clip(scores + step, -_LARGEST, _LARGEST)
                seen = self._predicted(trial)
                better = self._loss(trial, self._logs - seen, sigma)
                if better < loss:
                    break
                damping *= 6
            else:
                break
            damping = max(damping / 4, 1e-4)
            scores, here = trial, seen
            if loss - better < 1e-3 * max(1.0, loss):
                break
        covariance = np.linalg.inv(precision)
        return Posterior(
            scores=dict(zip(self._names, scores.tolist(), strict=True)),
            deviations={n: math.sqrt(covariance[i, i]) for i, n in enumerate(self._names)},
            spread=self._spread(self._logs - here),
        )
