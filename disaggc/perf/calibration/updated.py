"""A posterior over scores -> constants with ranges, as a calibration file carries them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from disaggc.perf.calibration.posterior import Posterior
from disaggc.perf.constants import Z90, Constants, Range
from disaggc.perf.estimate import Basis

_KNOWN = 0.1
"""Share of a constant's doubt that must be gone before a calibration states it; the rest stays with the priors."""
DECODE_KINDS = (
    "tpot",
    "itl_p50",
    "output_tps",
    "total_tps",
    "output_tps_gpu",
    "total_tps_gpu",
    "user_tps",
    "rps",
)
PROMPT_KINDS = ("ttft_p50", "ttft_mean")


_STEP = Range(0.7, 1.0, 1.43)
_PROMPT = Range(0.5, 1.0, 2.0)
"""How far a whole step or prompt may be from the sum of its parts before anything was measured."""


def loosened(prior: Constants) -> Constants:
    """The priors as a fit starts from them: with a factor on every step and prompt, which a plan does not vary."""
    return replace(prior, step_miss=_STEP, prompt_miss=_PROMPT)


def updated_ranges(prior: Constants, posterior: Posterior) -> dict[str, Range]:
    """The constants that the measurements moved or narrowed, and the spread they left."""
    out = {}
    loose = loosened(prior)
    for name, score in posterior.scores.items():
        given: Range | None = getattr(loose, name)
        if given is None or (posterior.known(name) <= _KNOWN and abs(score) <= 0.5):
            continue
        deviation = posterior.deviations[name]
        low, high = sorted(given.quantile(score + z * deviation) for z in (-Z90, Z90))
        mid = given.quantile(score)
        out[name] = Range(min(low, mid), mid, max(high, mid))
    for name, kinds in (("step_miss", DECODE_KINDS), ("prompt_miss", PROMPT_KINDS)):
        out[name] = _widened(out.get(name, getattr(prior, name)), posterior.spread, kinds)
    return out


def updated_constants(prior: Constants, posterior: Posterior, source: str) -> Constants:
    """The prior with those ranges in place."""
    return replace(
        prior, **updated_ranges(prior, posterior), basis=Basis.CALIBRATED, source=source, carried_from=()
    )


def _widened(factor: Range, spread: Mapping[str, float], kinds: tuple[str, ...]) -> Range:
    """The factor with the residuals in its range: those of the sharpest kind that was measured."""
    found = [spread[kind] for kind in kinds if kind in spread]
    if not found:
        return factor
    down, up = (
        math.exp(math.hypot(Z90 * min(found), math.log(max(edge, 1 / edge))))
        for edge in (factor.mid / factor.low, factor.high / factor.mid)
    )
    return Range(factor.mid / down, factor.mid, factor.mid * up)
