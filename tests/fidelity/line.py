"""One line of the scoreboard: a question with a published bar, and the figures that answer it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One line. bar: what the reference prototype reached. missing: why it cannot be computed."""

    name: str
    bar: str
    figures: Figures = field(default_factory=dict)
    missing: str = ""


def spread_of(errors: Iterable[float]) -> Figures:
    """Mean, median and 90 % quantile of absolute relative errors."""
    found = sorted(abs(e) for e in errors)
    return {
        "rows": float(len(found)),
        "mape": statistics.fmean(found),
        "median": statistics.median(found),
        "p90": found[min(len(found) - 1, math.ceil(0.9 * len(found)) - 1)],
    }


def held_out(ratios: Mapping[str, Sequence[float]]) -> Figures:
    """Figures of predicted over measured, label by label."""
    out: Figures = {}
    for label, found in ratios.items():
        if found:
            out |= {f"{label}_{k}": v for k, v in spread_of(r - 1 for r in found).items()}
            out[f"{label}_within_2x"] = sum(0.5 <= r <= 2 for r in found) / len(found)
    return out
