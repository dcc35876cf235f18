"""A posterior over scores -> constants with ranges, as a calibration file carries them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from disaggc.perf.calibration.posterior import Posterior
from disaggc.perf.constants import Constants, Range
from disaggc.perf.estimate import Basis

_Z90 = 1.2815515594457831
_KNOWN = 0.1
"""Share of a constant's doubt that must be gone before a calibration states it; the rest stays with the priors."""
DECODE_KINDS = ("tpot", "itl_p50", "output_tps", "total_tps", "output_tps_gpu", "total_tps_gpu", "user_tps", "rps")
PROMPT_KINDS = ("ttft_p50", "ttft_mean")


def updated_ranges(prior: Constants, posterior: Posterior) -> dict[str, Range]:
    """The constants that the measurements moved or narrowed, and the spread they left."""
    out = {}
    for name, score in posterior.scores.items():
        given: Range | None = getattr(prior, name)
        if given is not None and (posterior.known(name) > _KNOWN or abs(score) > 0.5):
            deviation = posterior.deviations[name]
            low, high = sorted(given.quantile(score + z * deviation) for z in (-_Z90, _Z90))
            mid = given.quantile(score)
            out[name] = Range(min(low, mid), mid, max(high, mid))
    spread = posterior.spread
    out["step_miss"] = _factor(spread, DECODE_KINDS)
    out["prompt_miss"] = _factor(spread, PROMPT_KINDS)
    return out


def updated_constants(prior: Constants, posterior: Posterior, source: str) -> Constants:
    """The prior with those ranges in place."""
    return replace(prior, **updated_ranges(prior, posterior), basis=Basis.CALIBRATED, source=source)


def _factor(spread: Mapping[str, float], kinds: tuple[str, ...]) -> Range:
    """80 % range of a factor that stands for the residuals: of the sharpest kind that was measured."""
    found = [spread[kind] for kind in kinds if kind in spread]
    width = math.exp(_Z90 * min(found)) if found else 1.0
    return Range(1 / width, 1.0, width)
