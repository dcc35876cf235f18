"""The lines of the reference table: each one a question with a published bar, computed from the rows at hand.

A line that the rows do not allow says so instead of a figure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from disaggc.perf.calibration.least_squares import fit_relative
from disaggc.perf.calibration.level_fit import fit_level
from tests.fidelity.asking import Asked
from tests.fidelity.choices import choices, ratios_on_priors
from tests.fidelity.columns import Board
from tests.fidelity.line import Line, held_out, spread_of
from tests.fidelity.points import Point
from tests.fidelity.systems import fitted, informed
from tests.fidelity.transfers import transfer_line

HELD_OUT = {"tpot": "tpot", "tok_s_gpu": "total_tps_gpu", "ttft": "ttft_p50"}
"""What the lines of rows held out are about: label -> quantity."""
_SLOTS = (
    "recipes limit the batch of decode engines, which the table does not state: where the load asks for more, requests wait "
    "for a slot, their first token takes seconds at a prefill load below a half, and throughput stays short"
)


def lines_of(board: Board, points: Sequence[Point]) -> tuple[Line, ...]:
    """Every line in the table's order."""
    return (
        _qwen(board.asked),
        _linear_tpot(points),
        _levelled_tpot(board.asked),
        _held_out(board),
        _gptoss(board.asked),
        transfer_line(points),
        ratios_on_priors(board.asked),
    )


def _measured(asked: Sequence[Asked], source: str, quantity: str) -> list[Asked]:
    """What a source measured of a quantity under a load that the table states."""
    of_source = [a for a in asked if a.subject.point.source == source and a.subject.point.closed]
    return [a for a in of_source if quantity in a.subject.point.measured]


def _qwen(asked: Sequence[Asked]) -> Line:
    name, bar = (
        "Qwen3.5-397B GB200: fit 4P and 8P, predict between (tok/s/GPU)",
        "4.6 %, best P 7 of 8, worst regret 1.5 %; 11 % without a prefill limit",
    )
    rows = _measured(asked, "vllm_qwen35_sweep", "total_tps_gpu")
    ends = [a for a in rows if a.subject.point.p_workers in {4.0, 8.0}]
    between = [a for a in rows if a.subject.point.p_workers not in {4.0, 8.0}]
    if not ends or not between:
        return Line(name, bar, missing="no rows at 4P and 8P with rows between")
    posterior = fitted(ends, 48)
    if posterior is None:
        return Line(name, bar, missing="the rows at 4P and 8P fit no constants")
    said = {id(a): informed(a, posterior).predicted()["total_tps_gpu"].value for a in rows}
    errors = [said[id(a)] / a.subject.point.value("total_tps_gpu") - 1 for a in between]
    best = choices(rows, lambda a: said[id(a)], "total_tps_gpu")
    return Line(name, bar, {**spread_of(errors), **best, "naive_mape": _without_limit(ends, between)})


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
            and p.closed
            and math.isfinite(p.isl + p.osl)
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


def _levelled_tpot(asked: Sequence[Asked]) -> Line:
    """Token time as `calibrate` fits it: the model's own times a level and a power of the batch of a kind of worker."""
    name = "InferenceX disaggregated: TPOT as `calibrate` fits it (a level and a growth of the model's own), leave one out"
    bar = "8.4 % (median 5.6, p90 19.1)"
    workers: dict[tuple[str, ...], list[tuple[float, float, float]]] = defaultdict(list)
    for a in asked:
        p = a.subject.point
        if p.source == "inferencex_via_aic" and "tpot" in p.measured and p.closed and p.d_workers >= 1:
            key = (p.model, p.precision, p.gpu, p.backend.split()[0], p.d_parallel)
            workers[key].append((a.predicted()["tpot"].value, p.concurrency / p.d_workers, p.value("tpot")))
    errors = [
        error
        for members in workers.values()
        if len(members) > 1
        for error in fit_level([m[:2] for m in members], [m[2] for m in members]).left_out
    ]
    return (
        Line(name, bar, {**spread_of(errors), "worker_kinds": float(len(workers))})
        if errors
        else Line(name, bar, missing="no kind of worker with two rows")
    )


def _features(p: Point) -> list[float]:
    batch = p.concurrency / p.d_workers
    return [1.0, batch, batch * (p.isl + p.osl / 2)]


def _held_out(board: Board) -> Line:
    name, bar = (
        "InferenceX disaggregated: alternate rows held out",
        "TPOT 7.7 %, tok/s/GPU 12.0 % (p90 32 %), TTFT within 2x 62 % (event simulator)",
    )
    found = [j for j in board.judged if j.source == "inferencex_via_aic" and "calibrated" in j.said]
    figures = held_out(
        {
            label: [j.said["calibrated"].value / j.measured for j in found if j.quantity == quantity]
            for label, quantity in HELD_OUT.items()
        }
    )
    return Line(name, bar, figures, _SLOTS) if figures else Line(name, bar, missing="no system with six rows")


def _gptoss(asked: Sequence[Asked]) -> Line:
    name, bar = (
        "gpt-oss-120b 8xH200: fit 2P2D, predict 1P3D and 3P1D: best ratio",
        "8 of 12 cells; 8 of 12 for always 1P3D",
    )
    rows = [a for a in _measured(asked, "dstack_pd_ratio", "output_tps") if a.subject.point.n_gpus == 8]
    ends = [a for a in rows if a.subject.point.p_workers == a.subject.point.d_workers]
    if not ends or len(ends) == len(rows):
        return Line(name, bar, missing="no rows of 2P2D with other ratios")
    posterior = fitted(ends, 24)
    if posterior is None:
        return Line(name, bar, missing="the rows of 2P2D fit no constants")
    known = {id(a): informed(a, posterior).predicted() for a in rows}
    other = [a for a in rows if a not in ends]
    errors = [known[id(a)]["output_tps"].value / a.subject.point.value("output_tps") - 1 for a in other]
    chosen = choices(rows, lambda a: known[id(a)]["output_tps"].value, "output_tps")
    always = choices(rows, lambda a: a.subject.point.d_workers, "output_tps")
    cold = [a for a in rows if not a.subject.point.cached]
    clean = choices(cold, lambda a: known[id(a)]["output_tps"].value, "output_tps")
    figures = {**spread_of(errors), **chosen, **{f"always_1p3d_{k}": v for k, v in always.items()}}
    figures |= {f"prefix_cache_cold_{k}": v for k, v in clean.items()}
    return Line(name, bar, figures, "the table warns that a prefix cache answered prompts in the other cells")
