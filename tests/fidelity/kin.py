"""How far the levels of two shapes of one system lie apart, and those of two models on one accelerator.

A level is the median over a system's points in one shape of what was measured over what the priors say. A system is
what one calibration covers: a source's runs of one model at one precision on one accelerator, on one engine version.
`python -m tests.fidelity --carried` writes the figures that plans carry measurements by.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disaggc.perf.carried import Part
from tests.fidelity.asking import Asked
from tests.fidelity.widths import quantile

_QUANTITIES: Mapping[Part, Mapping[str, float]] = {
    "decode": {"tpot": 1.0, "itl_p50": 1.0, "user_tps": -1.0},
    "prompt": {"ttft_p50": 1.0, "ttft_mean": 1.0},
}
"""Figures that say how long a step or a prompt takes, best first; -1: the inverse does."""
_SHARE = 0.8
_LEAST = 3
"""Points of a shape from which their median is a level."""
_System = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two levels, logarithms, and what the pair weighs in its source."""

    source: str
    known: float
    other: float
    weight: float


def document_of(asked: Sequence[Asked]) -> dict[str, Any]:
    """What `carried.json` holds of the two relations, by part."""
    levels = {part: levels_of(asked, part) for part in _QUANTITIES}
    return {
        "shapes": {part: _figures(between_shapes(found)) for part, found in levels.items()},
        "models": {part: _figures(between_models(found)) for part, found in levels.items()},
    }


def levels_of(asked: Sequence[Asked], part: Part) -> dict[_System, dict[str, float]]:
    """System -> shape -> its level. Points whose accelerator the table does not name are left out."""
    found: dict[_System, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in asked:
        point = one.subject.point
        if one.subject.assumed or (miss := _miss(one, part)) is None:
            continue
        pool = one.case.prefill[0] if part == "prompt" and one.case.prefill else one.case.decode[0]
        system = (point.source, point.model, point.precision, point.gpu, point.backend, point.mode)
        found[system][str(pool.pool.shape)].append(miss)
    kept = {
        system: {s: statistics.median(misses) for s, misses in shapes.items() if len(misses) >= _LEAST}
        for system, shapes in found.items()
    }
    return {system: shapes for system, shapes in kept.items() if shapes}


def _miss(one: Asked, part: Part) -> float | None:
    measured = one.subject.point.measured
    name = next((q for q in _QUANTITIES[part] if q in measured), None)
    if name is None:
        return None
    seen, said = one.subject.point.value(name), one.at_priors()[name]
    return _QUANTITIES[part][name] * math.log(seen / said) if seen > 0 and said > 0 else None


def between_shapes(levels: Mapping[_System, Mapping[str, float]]) -> list[Pair]:
    """Every ordered pair of shapes of a system; systems of a source weigh equally."""
    out = []
    for system, shapes in levels.items():
        ordered = [(a, b) for i, a in shapes.items() for k, b in shapes.items() if i != k]
        out += [Pair(system[0], a, b, 1 / len(ordered)) for a, b in ordered]
    return out


def between_models(levels: Mapping[_System, Mapping[str, float]]) -> list[Pair]:
    """Every ordered pair of systems of different models on one accelerator and one kind of engine."""
    middle = {system: statistics.median(shapes.values()) for system, shapes in levels.items()}
    return [
        Pair(one[0], a, b, 1.0)
        for one, a in middle.items()
        for other, b in middle.items()
        if one[1] != other[1] and one[3] == other[3] and one[4].split()[:1] == other[4].split()[:1]
    ]


def _figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """apart: 80 % quantile of what lies between the two levels, sources weighing equally; alone: of a level itself.

    slope: of one level on the other, through zero: 0 where a level says nothing of another.
    """
    whole: dict[str, float] = defaultdict(float)
    for p in pairs:
        whole[p.source] += p.weight
    weighed = [(p, p.weight / whole[p.source]) for p in pairs]

    def at(found: Sequence[tuple[float, float]]) -> float:
        return round(quantile(sorted(found), _SHARE), 3)

    squares = sum(w * p.known**2 for p, w in weighed)
    return {
        "apart": at([(abs(p.other - p.known), w) for p, w in weighed]),
        "alone": at([(abs(p.other), w) for p, w in weighed]),
        "slope": round(sum(w * p.known * p.other for p, w in weighed) / squares, 3),
        "pairs": len(pairs) // 2,
        "sources": sorted(whole),
    }
