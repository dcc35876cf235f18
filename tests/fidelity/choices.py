"""The best ratio of a load among those that were measured: whether it is found, and what it costs where it is not."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from tests.fidelity.asking import Asked
from tests.fidelity.line import Figures, Line

_YIELDS = ("total_tps_gpu", "output_tps_gpu", "output_tps")
_LEAST_CELLS = 4
_DSTACK = "dstack_pd_ratio"
_UNRANKED = (
    "dstack's worst is 32,784/2,048 at 128 in flight, where its 1P1D on four accelerators served more than 2P2D and 3P1D on "
    "eight: no model of capacity ranks those"
)


def choices(rows: Sequence[Asked], said: Callable[[Asked], float], quantity: str) -> Figures:
    """Per load with at least two measured layouts: whether the predicted best is the best, and what it costs if not."""
    cells: dict[tuple[object, ...], list[Asked]] = defaultdict(list)
    for a in rows:
        p = a.subject.point
        cells[p.model, p.precision, p.gpu, round(p.isl), p.nominal_osl, p.concurrency].append(a)
    right, regrets = 0, []
    for members in cells.values():
        if len({a.subject.point.layout for a in members}) < 2:
            continue
        best = max(members, key=lambda a: a.subject.point.value(quantity))
        chosen = max(members, key=said)
        regret = 1 - chosen.subject.point.value(quantity) / best.subject.point.value(quantity)
        right += regret < 1e-9
        regrets.append(regret)
    if not regrets:
        return {"cells": 0.0}
    return {
        "cells": float(len(regrets)),
        "best_right": float(right),
        "mean_regret": statistics.fmean(regrets),
        "worst_regret": max(regrets),
    }


def ratios_on_priors(asked: Sequence[Asked]) -> Line:
    """The best of the layouts that one source measured under one load, chosen before anything was calibrated."""
    name = "Best ratio on priors alone, every source that measured several ratios under one load"
    bar = "mean regret 3 %, worst 10 % after calibration"
    figures: Figures = {}
    for source in dict.fromkeys(a.subject.point.source for a in asked):
        rows = [a for a in asked if a.subject.point.source == source and a.subject.point.mode == "disagg"]
        quantity = next((q for q in _YIELDS if any(q in a.subject.point.measured for a in rows)), None)
        if quantity is None:
            continue
        rows = [a for a in rows if quantity in a.subject.point.measured]
        if quantity == "output_tps":  # without a count per accelerator only clusters of one size compare
            size = Counter(a.subject.point.n_gpus for a in rows).most_common(1)[0][0]
            rows = [a for a in rows if a.subject.point.n_gpus == size]
        found = choices(rows, lambda a, q=quantity: a.predicted()[q].value, quantity)
        if found["cells"] >= _LEAST_CELLS:
            figures |= {f"{source}_{k}": v for k, v in found.items()}
    return (
        Line(name, bar, figures, _UNRANKED if f"{_DSTACK}_cells" in figures else "")
        if figures
        else Line(name, bar, missing="no source with several ratios")
    )
