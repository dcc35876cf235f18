"""How far measured values lie from ranges that have not seen them -> the factors that plans stretch their ranges by.

Split by source, as conformal prediction is: the factors of a source under test come from all the others.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from disaggc.perf.spread import MEASURES, Measure, Stretch, factor_for, side
from tests.fidelity.asking import Predicted

MEASURE_OF: Mapping[str, Measure] = {
    "ttft_p50": "first_token", "ttft_mean": "first_token", "ttft_p99": "first_token_tail",
    "tpot": "token", "itl_p50": "token", "user_tps": "token", "itl_p99": "token_tail",
    "e2e_p50": "flow", "e2e_mean": "flow", "rps": "flow", "output_tps": "flow", "total_tps": "flow",
    "total_tps_gpu": "flow", "output_tps_gpu": "flow",
}  # fmt: skip
_BODY: Mapping[Measure, Measure] = {"first_token_tail": "first_token", "token_tail": "token"}
"""Few sources publish tails: a tail's factors are never below those of the median."""
_SIDE = 0.9
"""Share of values one side of an 80 % range has to hold."""
_MOST = 0.95
"""With k sources a quantile of a new one is (k + 1) / k further out; never beyond this share, or single rows decide."""
_NONE = Stretch()


@dataclass(frozen=True, slots=True)
class Miss:
    """One value: how far beyond the middle of its range, in widths of that side. Above is positive."""

    source: str
    measure: Measure
    score: float


def miss_of(source: str, quantity: str, measured: float, said: Predicted) -> Miss | None:
    """None where the quantity has no measure, or that side of the range is closed."""
    measure = MEASURE_OF.get(quantity)
    up = measured > said.value
    width = side(said.high, said.value) if up else side(said.value, said.low)
    if measure is None or width <= 0:
        return None
    score = factor_for(width, abs(math.log(measured / said.value)))
    return Miss(source, measure, score if up else -score)


def stretches_of(misses: Sequence[Miss]) -> dict[Measure, Stretch]:
    """The factors these values ask for, sources weighing equally. So few sources never narrow a range."""
    found: dict[Measure, list[Miss]] = defaultdict(list)
    for miss in misses:
        found[miss.measure].append(miss)
    out = {measure: _stretch(found[measure]) for measure in MEASURES}
    for tail, body in _BODY.items():
        both = (out[tail], out[body])
        out[tail] = Stretch(max(s.below for s in both), max(s.above for s in both))
    return out


def _stretch(misses: Sequence[Miss]) -> Stretch:
    if not misses:
        return _NONE
    count = Counter(m.source for m in misses)
    share = min(_MOST, _SIDE * (len(count) + 1) / len(count))
    weighted = sorted((m.score, 1 / count[m.source]) for m in misses)
    mirrored = [(-score, weight) for score, weight in reversed(weighted)]
    return Stretch(max(1.0, quantile(mirrored, share)), max(1.0, quantile(weighted, share)))


def quantile(weighted: Iterable[tuple[float, float]], share: float) -> float:
    """Of (value, weight) in rising order of value."""
    rows = list(weighted)
    whole, seen = sum(w for _, w in rows), 0.0
    for value, weight in rows:
        seen += weight
        if seen >= share * whole - 1e-12:
            return value
    return rows[-1][0]


def stretched(said: Predicted, quantity: str, by: Mapping[Measure, Stretch]) -> Predicted:
    """A prediction with its range stretched."""
    measure = MEASURE_OF.get(quantity)
    stretch = by.get(measure, _NONE) if measure else _NONE
    return Predicted(said.value, *stretch.applied(said.value, said.low, said.high))


def document_of(misses: Sequence[Miss]) -> dict[str, Any]:
    """Factors from all sources and from all but each, as `spread.json` holds them."""
    sources = sorted({m.source for m in misses})
    return {
        "all": _plain(misses),
        "without": {source: _plain([m for m in misses if m.source != source]) for source in sources},
    }


def _plain(misses: Sequence[Miss]) -> dict[str, Any]:
    return {
        measure: {
            "below": round(stretch.below, 3),
            "above": round(stretch.above, 3),
            "values": sum(m.measure == measure for m in misses),
            "sources": sorted({m.source for m in misses if m.measure == measure}),
        }
        for measure, stretch in stretches_of(misses).items()
    }
