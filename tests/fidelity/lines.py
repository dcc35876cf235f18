"""The lines of the reference table: each one a question with a published bar, computed from the rows at hand.

A line that the rows do not allow says so instead of a figure.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from disaggc.perf.calibration.least_squares import fit_relative
from tests.fidelity.asking import Asked
from tests.fidelity.columns import Board
from tests.fidelity.points import Point
from tests.fidelity.subjects import facts_of
from tests.fidelity.systems import Informed, fitted

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One line. bar: what the reference prototype reached. missing: why it cannot be computed."""

    name: str
    bar: str
    figures: Figures = field(default_factory=dict)
    missing: str = ""


def lines_of(board: Board, points: Sequence[Point]) -> tuple[Line, ...]:
    """Every line in the table's order."""
    return (
        _qwen(board.asked),
        _linear_tpot(points),
        _levelled_tpot(board.asked),
        _held_out(board),
        _gptoss(board.asked),
        _transfer(points),
    )


def spread_of(errors: Iterable[float]) -> Figures:
    """Mean, median and 90 % quantile of absolute relative errors."""
    found = sorted(abs(e) for e in errors)
    return {
        "rows": float(len(found)),
        "mape": statistics.fmean(found),
        "median": statistics.median(found),
        "p90": found[min(len(found) - 1, math.ceil(0.9 * len(found)) - 1)],
    }


def _qwen(asked: Sequence[Asked]) -> Line:
    name, bar = (
        "Qwen3.5-397B GB200: fit 4P and 8P, predict between (tok/s/GPU)",
        "4.6 %, best P 7 of 8, worst regret 1.5 %; 11 % without a prefill limit",
    )
    rows = [a for a in asked if a.subject.point.source == "vllm_qwen35_sweep"]
    ends = [a for a in rows if a.subject.point.p_workers in {4.0, 8.0}]
    between = [a for a in rows if a.subject.point.p_workers not in {4.0, 8.0}]
    if not ends or not between:
        return Line(name, bar, missing="no rows at 4P and 8P with rows between")
    posterior = fitted(ends, 48)
    assert posterior is not None
    said = {id(a): Informed(a, posterior).predicted()["total_tps_gpu"].value for a in rows}
    errors = [said[id(a)] / a.subject.point.value("total_tps_gpu") - 1 for a in between]
    choices = _choices(rows, lambda a: said[id(a)], "total_tps_gpu")
    return Line(name, bar, {**spread_of(errors), **choices, "naive_mape": _without_limit(ends, between)})


def _without_limit(ends: Sequence[Asked], between: Sequence[Asked]) -> float:
    """The naive rival: tokens/s per decode GPU interpolated over concurrency, as if prefill never limited."""
    rates: dict[float, list[float]] = defaultdict(list)
    for a in ends:
        p = a.subject.point
        rates[p.concurrency].append(p.value("total_tps_gpu") * p.n_gpus)
    errors = []
    for a in between:
        p = a.subject.point
        if rates[p.concurrency]:
            errors.append(max(rates[p.concurrency]) / p.n_gpus / p.value("total_tps_gpu") - 1)
    return spread_of(errors)["mape"] if errors else math.nan


def _choices(rows: Sequence[Asked], said: Callable[[Asked], float], quantity: str) -> Figures:
    """Per load with at least two measured layouts: whether the predicted best is the best, and what it costs if not."""
    cells: dict[tuple[float, ...], list[Asked]] = defaultdict(list)
    for a in rows:
        p = a.subject.point
        cells[round(p.isl), p.nominal_osl, p.concurrency].append(a)
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


def _linear_tpot(points: Sequence[Point]) -> Line:
    """Token time as a + b B + c S of one kind of decode worker, each row predicted from the others."""
    name, bar = (
        "InferenceX disaggregated: TPOT from a + b B + c S, leave one out, no measured input",
        "8.4 % (median 5.6, p90 19.1)",
    )
    workers: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for p in points:
        if (
            p.source == "inferencex_via_aic"
            and p.mode == "disagg"
            and "tpot" in p.measured
            and p.d_workers >= 1
        ):
            workers[p.model, p.precision, p.gpu, p.backend.split()[0], p.d_parallel].append(p)
    errors: list[float] = []
    kinds = 0
    for members in workers.values():
        rows = [_features(p) for p in members]
        if len(members) < len(rows[0]) + 1:
            continue
        errors += fit_relative(rows, [p.value("tpot") for p in members]).left_out
        kinds += 1
    return (
        Line(name, bar, {**spread_of(errors), "worker_kinds": float(kinds)})
        if errors
        else Line(name, bar, missing="no kind of worker with four rows")
    )


_LEVEL, _SLOPE, _NOISE = 0.4, 0.15, 0.08
"""Deviations, in logarithms: of one kind of worker's level and growth from the prior, and of one row."""


def _levelled_tpot(asked: Sequence[Asked]) -> Line:
    """Token time as the prior's times a level and a power of the batch of each kind of worker."""
    name = "InferenceX disaggregated: TPOT from the prior's step with a level and a growth per worker, leave one out"
    bar = "8.4 % (median 5.6, p90 19.1)"
    workers: dict[tuple[str, ...], list[tuple[float, float]]] = defaultdict(list)
    for a in asked:
        p = a.subject.point
        if p.source == "inferencex_via_aic" and "tpot" in p.measured:
            miss = math.log(p.value("tpot") / a.predicted()["tpot"].value)
            key = (p.model, p.precision, p.gpu, p.backend.split()[0], p.d_parallel)
            workers[key].append((math.log(p.concurrency / p.d_workers), miss))
    errors = [
        math.exp(_level_at([m for k, m in enumerate(members) if k != i], batch) - miss) - 1
        for members in workers.values()
        if len(members) > 1
        for i, (batch, miss) in enumerate(members)
    ]
    return (
        Line(name, bar, spread_of(errors))
        if errors
        else Line(name, bar, missing="no kind of worker with two rows")
    )


def _level_at(members: Sequence[tuple[float, float]], batch: float) -> float:
    """Ridge regression of the misses on the logarithm of the batch, robust; its value at one batch."""
    centre = statistics.fmean(b for b, _ in members)
    level = slope = 0.0
    for _ in range(4):
        weights = [
            min(1.0, 1.5 * _NOISE / max(abs(m - level - slope * (b - centre)), 1e-9)) for b, m in members
        ]
        rows = [(w / _NOISE**2, b - centre, m) for w, (b, m) in zip(weights, members, strict=True)]
        a, c = sum(w for w, _, _ in rows) + _LEVEL**-2, sum(w * x * x for w, x, _ in rows) + _SLOPE**-2
        cross = sum(w * x for w, x, _ in rows)
        u, v = sum(w * y for w, _, y in rows), sum(w * x * y for w, x, y in rows)
        det = a * c - cross * cross
        level, slope = (u * c - v * cross) / det, (v * a - u * cross) / det
    return level + slope * (batch - centre)


def _features(p: Point) -> list[float]:
    batch = p.concurrency / p.d_workers
    return [1.0, batch, batch * (p.isl + p.osl / 2)]


def _held_out(board: Board) -> Line:
    name, bar = (
        "InferenceX disaggregated: alternate rows held out",
        "TPOT 7.7 %, tok/s/GPU 12.0 % (p90 32 %), TTFT within 2x 62 % (event simulator)",
    )
    found = [j for j in board.judged if j.source == "inferencex_via_aic" and "calibrated" in j.said]
    figures: Figures = {}
    for quantity, label in (("tpot", "tpot"), ("total_tps_gpu", "tok_s_gpu"), ("ttft_p50", "ttft")):
        ratios = [j.said["calibrated"].value / j.measured for j in found if j.quantity == quantity]
        if ratios:
            figures |= {f"{label}_{k}": v for k, v in spread_of(r - 1 for r in ratios).items()}
            figures[f"{label}_within_2x"] = sum(0.5 <= r <= 2 for r in ratios) / len(ratios)
    return Line(name, bar, figures) if figures else Line(name, bar, missing="no system with six rows")


def _gptoss(asked: Sequence[Asked]) -> Line:
    name, bar = (
        "gpt-oss-120b 8xH200: fit 2P2D, predict 1P3D and 3P1D: best ratio",
        "8 of 12 cells; 8 of 12 for always 1P3D",
    )
    rows = [a for a in asked if a.subject.point.source == "dstack_pd_ratio" and a.subject.point.n_gpus == 8]
    ends = [a for a in rows if a.subject.point.p_workers == a.subject.point.d_workers]
    if not ends or len(ends) == len(rows):
        return Line(name, bar, missing="no rows of 2P2D with other ratios")
    posterior = fitted(ends, 24)
    assert posterior is not None
    known = {id(a): Informed(a, posterior).predicted() for a in rows}
    other = [a for a in rows if a not in ends]
    errors = [known[id(a)]["output_tps"].value / a.subject.point.value("output_tps") - 1 for a in other]
    chosen = _choices(rows, lambda a: known[id(a)]["output_tps"].value, "output_tps")
    always = _choices(rows, lambda a: a.subject.point.d_workers, "output_tps")
    cold = [a for a in rows if not a.subject.point.cached]
    clean = _choices(cold, lambda a: known[id(a)]["output_tps"].value, "output_tps")
    figures = {**spread_of(errors), **chosen, **{f"always_1p3d_{k}": v for k, v in always.items()}}
    figures |= {f"prefix_cache_cold_{k}": v for k, v in clean.items()}
    return Line(name, bar, figures, "the table warns that a prefix cache answered prompts in the other cells")


def _transfer(points: Sequence[Point]) -> Line:
    """Transfer time as setup + bytes / bandwidth, each prompt length predicted from the others."""
    name, bar = "KV transfer time: setup + bytes / bandwidth, leave one length out", "3.9 % / 1.0 %"
    figures: Figures = {}
    for source in dict.fromkeys(p.source for p in points if "kv_s" in p.measured):
        rows = sorted((p for p in points if p.source == source and "kv_s" in p.measured), key=lambda p: p.isl)
        facts = facts_of(rows[0].model, rows[0].precision)
        if facts is None or len(rows) < 4:
            continue
        fit = fit_relative(
            [[1.0, p.isl * facts.kv_bytes_per_token] for p in rows], [p.value("kv_s") for p in rows]
        )
        figures[f"{source}_mape"] = spread_of(fit.left_out)["mape"]
        figures[f"{source}_gb_s"] = 1e-9 / fit.coefficients[1]
    return Line(name, bar, figures) if figures else Line(name, bar, missing="no transfer times")
