"""What was measured of one shape of a model on an accelerator, carried to its other shapes.

A measured engine stands at some level beside what the priors say of it: of its decode step and how that grows with the
batch, of its prompts, of what they cost before their first token, of the KV link. Another shape of the same model and
accelerator is taken to stand at the same level beside its own priors, in doubt by how far published levels of two
shapes lie apart (`carried.json`), but never in more doubt than the priors leave.

Levels are not carried to other models: published ones say next to nothing of each other (`carried.json`, `models`).
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

from disaggc.perf.constants import HIGHER_IS_BETTER, Constants, Range
from disaggc.perf.engine_model import SLOPE_CENTRE, EngineModel, StepTimes

Part = Literal["decode", "prompt", "link"]
"""What is measured apart: decode steps, prompts, the way of KV to decode."""
FILE = Path(__file__).with_name("carried.json")
_STEPS = ((1.0, 384.0), (256.0, 384.0), (64.0, 2304.0), (8.0, 8192.0), (64.0, 8192.0))
"""(batch, context) at which steps are set beside each other: the runs of the bench schedule."""
_PROMPTS = (2048.0, 8192.0)
"""Tokens of prompts that are computation, not what comes before it."""
_DECODE = (
    "memory_eff", "expert_memory_eff", "kv_memory_eff", "step_s", "kernel_s", "sequence_s", "step_miss",
)  # fmt: skip
_BOTH = ("compute_eff", "expert_compute_eff", "link_eff", "collective_s", "all2all_s", "imbalance")
"""Constants that steps and prompts share."""
_LEAST = 1e-6
"""Share of a time below which its hopeful end says nothing."""
STATED: dict[Part, frozenset[str]] = {
    "decode": frozenset(
        (*_DECODE, *_BOTH, "batch_slope", "decode_fixed_s", "decode_per_sequence_s", "decode_per_token_s")
    ),
    "prompt": frozenset(
        (*_BOTH, "prefill_s", "prefill_kernel_s", "attention_eff", "prompt_miss", "prefill_per_token_s",
         "prefill_per_square_s")
    ),
    "link": frozenset(("kv_eff", "kv_setup_s", "kv_bytes_per_s")),
}  # fmt: skip
"""The constants of which one that is stated says that the part was measured."""
OF_ENGINE = ("kappa", "mixed_s", "burst", "join_s", "join_token_s", "host_bytes_per_s")
"""Constants that no shape changes."""


@dataclass(frozen=True, slots=True)
class Beside:
    """A measured engine: as the calibration file has it, and as it would be without that file."""

    seen: EngineModel
    said: EngineModel


@dataclass(frozen=True, slots=True)
class _Sides:
    """Logarithmic width of the slow and of the fast side of a time."""

    slow: float
    fast: float


@lru_cache(maxsize=1)
def widths() -> dict[str, float]:
    """Part -> how far the levels of two shapes lie apart, the 80 % quantile of the logarithm of their ratio."""
    shapes = json.loads(FILE.read_text(encoding="utf-8"))["shapes"]
    return {part: float(found["apart"]) for part, found in shapes.items()}


def with_steps(own: EngineModel, measured: Beside, *, shared: bool) -> Constants:
    """The constants of `own` with decode steps at the level of a measured engine, and growing with the batch as there.

    shared: no prompt of `own` is computed from the constants that both depend on, so that these are narrowed too.
    """
    given = own.constants
    found = [
        (math.log(batch / SLOPE_CENTRE), math.log(seen / said))
        for (batch, _), seen, said in zip(
            _STEPS, _steps(measured.seen.likely), _steps(measured.said.likely), strict=True
        )
    ]
    level, power = _line(found)
    names = (*_DECODE, *(_BOTH if shared else ()))
    narrowed = _narrowed(
        given, names, _shares(_sides(own, _steps), _sides(measured.seen, _steps), widths()["decode"])
    )
    slope = given.batch_slope
    return replace(
        narrowed,
        step_miss=_scaled(narrowed.step_miss, math.exp(level)),
        batch_slope=Range(slope.low + power, slope.mid + power, slope.high + power),
    )


def with_prompts(own: EngineModel, measured: Beside) -> Constants:
    """The constants of `own` with prompts at the level of a measured engine, and their fixed cost at its own level."""
    given, seen, said = own.constants, measured.seen.likely, measured.said.likely
    level = math.exp(
        statistics.fmean(math.log(x / y) for x, y in zip(_computed(seen), _computed(said), strict=True))
    )
    apart = widths()["prompt"]
    computed = _sides(own, _computed)
    shares = _shares(computed, _sides(measured.seen, _computed), apart)
    if own.table is not None:
        narrowed = _narrowed(given, ("prompt_miss",), shares)
        return replace(narrowed, prompt_miss=_scaled(narrowed.prompt_miss, level))
    fixed = _fixed(seen)[0] / _fixed(said)[0] * _fixed(own.likely)[0] - seen.values.hop_s
    before = _sides(own, _fixed)
    return replace(
        given,
        hop_s=measured.seen.constants.hop_s,
        prefill_s=_ranged(max(0.0, fixed), before, _shares(before, _sides(measured.seen, _fixed), apart)),
        prefill_per_token_s=_ranged(level * own.likely.prefill_token_s, computed, shares),
        prefill_per_square_s=_ranged(level * own.likely.prefill_square_s, computed, shares),
    )


def with_link(own: EngineModel, measured: Beside, speed: float) -> Constants:
    """The constants of `own` with the KV link at the share of its line that a measured engine reached.

    speed: of its line over that of the measured one. Nobody published the links of two shapes: the range of the share
    is that of the priors.
    """
    given, seen = own.constants, measured.seen.constants
    found = replace(given, kv_eff=seen.kv_eff, kv_setup_s=_as_wide(seen.kv_setup_s, given.kv_setup_s))
    if seen.kv_bytes_per_s is None:
        return found
    return replace(found, kv_bytes_per_s=_as_wide(_scaled(seen.kv_bytes_per_s, speed), given.kv_eff))


def with_engine(given: Constants, stated: dict[str, Range]) -> Constants:
    """With what another shape's entry states of the engine, at least as wide as the priors have it."""
    for name in OF_ENGINE:
        if name in stated:
            given = replace(given, **{name: _as_wide(stated[name], getattr(given, name))})  # type: ignore[arg-type]
    return given


def _steps(times: StepTimes) -> list[float]:
    return [times.decode(batch, context) for batch, context in _STEPS]


def _computed(times: StepTimes) -> list[float]:
    return [n * times.prefill_token_s + n * n * times.prefill_square_s for n in _PROMPTS]


def _fixed(times: StepTimes) -> list[float]:
    """What a first token takes beside the computation."""
    return [times.values.hop_s + times.prefill_fixed_s]


def _line(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: (value at zero, slope)."""
    xs, ys = zip(*points, strict=True)
    fit = statistics.linear_regression(xs, ys)
    return fit.intercept, fit.slope


def _sides(engine: EngineModel, times: Callable[[StepTimes], list[float]]) -> _Sides:
    worst, likely, best = (times(t) for t in (engine.worst, engine.likely, engine.best))
    slow = statistics.fmean(math.log(w / m) for w, m in zip(worst, likely, strict=True))
    fast = statistics.fmean(math.log(m / max(b, _LEAST * m)) for m, b in zip(likely, best, strict=True))
    return _Sides(max(0.0, slow), max(0.0, fast))


def _shares(before: _Sides, measured: _Sides, apart: float) -> _Sides:
    """Of the range before: what is left of each side. The doubts of measuring and of carrying are independent."""
    pairs = ((before.slow, measured.slow), (before.fast, measured.fast))
    return _Sides(*(min(1.0, math.hypot(now, apart) / side) if side > 0 else 1.0 for side, now in pairs))


def _ranged(value: float, before: _Sides, shares: _Sides) -> Range:
    low, high = math.exp(-shares.fast * before.fast), math.exp(shares.slow * before.slow)
    return Range(value * low, value, value * high)


def _narrowed(given: Constants, names: Iterable[str], shares: _Sides) -> Constants:
    for name in names:
        old: Range = getattr(given, name)
        low, high = (shares.slow, shares.fast) if name in HIGHER_IS_BETTER else (shares.fast, shares.slow)
        now = Range(old.mid * (old.low / old.mid) ** low, old.mid, old.mid * (old.high / old.mid) ** high)
        given = replace(given, **{name: now})  # type: ignore[arg-type]
    return given


def _scaled(given: Range, factor: float) -> Range:
    return Range(given.low * factor, given.mid * factor, given.high * factor)


def _as_wide(found: Range, prior: Range) -> Range:
    """At least as wide as the prior, in relative terms."""
    return Range(
        min(found.low, found.mid * prior.low / prior.mid) if prior.mid > 0 else found.low,
        found.mid,
        max(found.high, found.mid * prior.high / prior.mid) if prior.mid > 0 else found.high,
    )
