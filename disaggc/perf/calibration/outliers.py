"""Runs that the others of their engine contradict, found before they can spoil a fit. Knows numbers only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_FAR = math.log(3.0)
"""Logarithm of the factor beyond which a run is no longer noise."""
_CLEARLY = 4.0
"""It must be that many times farther off than the others are from each other."""
_TOGETHER = math.log(1.5)
"""Runs that one fit brings this close to all of them contradict nobody, however far apart they lie."""
_SHARE = 0.25
"""More of the runs than this are no outliers: then it is not known which are right."""
_FEW = 50
"""Up to so many runs one can bend the fit towards itself; of more, the fit to all of them shows who is far off."""
_MOST_LEFT_OUT = 100
"""Runs that are left out in turn: of more, evenly chosen ones, or the time would grow as their square."""
Predictor = Callable[[Sequence[float]], float]
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Outlier:
    """A run that does not fit. factor: what was measured over what the others say."""

    index: int
    factor: float


def outliers(
    rows: Rows, measured: Sequence[float], fitted: Callable[[Rows, Sequence[float]], Predictor], *, least: int
) -> list[Outlier]:
    """None where leaving out a few does not bring the others together.

    fitted: rows and their values -> what it predicts of a row. least: how many runs a fit needs.
    """

    def of(chosen: Sequence[int]) -> Predictor:
        return fitted([rows[k] for k in chosen], [measured[k] for k in chosen])

    def misses(predictor: Predictor, chosen: Sequence[int]) -> list[float]:
        return [_miss(measured[k], predictor(rows[k])) for k in chosen]

    left = list(range(len(rows)))
    found: list[Outlier] = []
    while max(map(abs, off := misses(of(left), left))) > _TOGETHER:
        if len(left) <= least + 1 or len(found) + 1 > _SHARE * len(rows):
            return []
        worst: tuple[float, int] | None = None
        suspects = [i for i, m in zip(left, off, strict=True) if len(left) <= _FEW or abs(m) > _TOGETHER]
        for i in suspects:
            others = [k for k in left if k != i]
            predictor = of(others)
            own = _miss(measured[i], predictor(rows[i]))
            among = statistics.median(abs(m) for m in misses(predictor, others))
            if abs(own) > max(_FAR, _CLEARLY * among) and (worst is None or abs(own) > abs(worst[0])):
                worst = own, i
        if worst is None:
            return []
        found.append(Outlier(worst[1], math.exp(worst[0])))
        left.remove(worst[1])
    return found


def left_out_of(runs: int) -> range:
    """Which of so many runs are left out in turn."""
    return range(0, runs, -(-runs // _MOST_LEFT_OUT) or 1)


def _miss(seen: float, said: float) -> float:
    return math.log(seen / said) if seen > 0 and said > 0 else math.inf
