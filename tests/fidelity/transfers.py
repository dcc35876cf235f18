"""KV transfer times: the form that plans use fitted to published ones, and asked of rows it was not fitted to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from disaggc.catalog.facts import ModelFacts
from disaggc.ir.plan import Shape
from disaggc.perf.calibration.least_squares import LinearFit, fit_relative
from disaggc.perf.models import Models
from disaggc.perf.transfer import Endpoint, kv_path, transfer_time
from tests.fidelity.line import Figures, Line, spread_of
from tests.fidelity.points import Point
from tests.fidelity.subjects import accelerator_of, facts_of
from tests.perf.perf_cases import load, nodes, resolved, service

NAME, BAR = "KV transfer time: setup + bytes / bandwidth, leave one length out", "3.9 % / 1.0 %"
_COMMITTED = Path(__file__).with_name("scoreboard.json")
_SHORT = 2048.0
"""Tokens up to which lengths count as short where the long ones are predicted from them."""
_LEAST = 4
_NOTE = (
    "the bar is of lengths that the dev rows do not hold, from a fit to those they do: 0.39 ms and 145 GB/s, 1.84 ms and "
    "172 GB/s (each byte of 4 KV heads over TP8 counted twice, in gb_s once). Left out, the shortest length is "
    "extrapolated to, those between others are not"
)


def transfer_line(points: Sequence[Point]) -> Line:
    """Every source that published transfer times, each as what a plan says, a fit, and a fit that did not see the row."""
    figures: Figures = {}
    for source in dict.fromkeys(p.source for p in points if "kv_s" in p.measured):
        rows = sorted((p for p in points if p.source == source and "kv_s" in p.measured), key=lambda p: p.isl)
        facts = facts_of(rows[0].model, rows[0].precision)
        if facts is not None:
            found = _of_source(rows, facts) | _held_back(source, rows, facts) | _prior(rows, facts)
            figures |= {f"{source}_{k}": v for k, v in found.items()}
    return Line(NAME, BAR, figures, _NOTE) if figures else Line(NAME, BAR, missing="no transfer times")


def _row(p: Point, facts: ModelFacts) -> tuple[float, float]:
    return (1.0, p.isl * facts.kv_bytes_per_token)


def _fit(rows: Iterable[Point], facts: ModelFacts) -> LinearFit:
    known = list(rows)
    return fit_relative([_row(p, facts) for p in known], [p.value("kv_s") for p in known])


def _of_source(rows: Sequence[Point], facts: ModelFacts) -> Figures:
    """Each length from the others; those between two others; long ones from short ones; the constants of all."""
    seen = [p for p in rows if not p.held_back]
    if len(seen) < _LEAST:
        return {}
    fit = _fit(seen, facts)
    out = {
        "mape": spread_of(fit.left_out)["mape"],
        "between_others_mape": spread_of(fit.left_out[1:-1])["mape"],
        "fitted_mape": spread_of(fit.errors)["mape"],
    }
    short = [p for p in seen if p.isl <= _SHORT]
    if 2 <= len(short) < len(seen):
        near = _fit(short, facts)
        far = [near.at(_row(p, facts)) / p.value("kv_s") - 1 for p in seen[len(short) :]]
        out["long_from_short_mape"] = spread_of(far)["mape"]
    setup, byte = fit.coefficients
    return out | {"setup_ms": setup * 1e3, "gb_s": 1e-9 / byte}


def _held_back(source: str, rows: Sequence[Point], facts: ModelFacts) -> Figures:
    """Rows of another split than the committed figures come from, by the constants of those."""
    unseen = [p for p in rows if p.held_back]
    known = json.loads(_COMMITTED.read_text(encoding="utf-8"))["lines"].get(NAME, {}).get("figures", {})
    if not unseen or f"{source}_setup_ms" not in known:
        return {}
    setup, speed = known[f"{source}_setup_ms"] * 1e-3, known[f"{source}_gb_s"] * 1e9
    errors = [(setup + _row(p, facts)[1] / speed) / p.value("kv_s") - 1 for p in unseen]
    return {"held_back_rows": float(len(errors)), "held_back_mape": spread_of(errors)["mape"]}


def _prior(rows: Sequence[Point], facts: ModelFacts) -> Figures:
    """What a plan says of nodes nobody measured: TP8 on both sides, a 200 Gbit/s card for each accelerator."""
    accelerator = accelerator_of(rows[0].gpu)
    if accelerator is None:
        return {}
    group, shape = nodes(accelerator, gbit=200), Shape(tp=8)
    one = service(facts, load(concurrency=1))
    models = Models.of(resolved(one, groups=(group,), fabric="roce")).value
    assert models is not None
    end = Endpoint(group, shape)
    path = kv_path(one, models.resolved.fabric, end, decode=end, same_node=False)
    constants = models.constants(one, group, shape)
    said = [(transfer_time(path, constants, p.isl), p.value("kv_s")) for p in rows]
    return {
        "prior_mape": spread_of(t.value / measured - 1 for t, measured in said)["mape"],
        "prior_in_range": sum(t.low <= measured <= t.high for t, measured in said) / len(said),
    }
