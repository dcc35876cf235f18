"""What runs say beyond a fit of their own: KV transfer after a prompt, and decode steps that a prompt shares."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from disaggc.perf.calibration.parts import LEAST_NOISE, Part
from disaggc.perf.calibration.reading import Dropped, Reading
from disaggc.perf.constants import Range

_SINGLE_DOUBT = math.log(1.1)
_MOST_NOISE = 1.0
"""Relative noise from which a difference of two measured times says nothing any more."""


def transfer_rows(
    readings: Sequence[Reading], prefill: Part, kv_bytes_per_token: float, *, dropped: list[Dropped]
) -> list[tuple[str, tuple[float, ...], float, float]]:
    """What a first token over prefill and decode takes beyond the prompt itself, with the noise of that difference.

    The prompt alone is not known exactly either: what its fit is off by is in the noise.
    """
    found: list[tuple[str, tuple[float, ...], float, float]] = []
    for r in readings:
        if r.setting.kind != "pd" or r.concurrency != 1 or not math.isfinite(r.ttft_s):
            continue
        alone = prefill.fit.at((1.0, r.isl, r.isl * r.isl))
        beyond = r.ttft_s - alone
        noise = math.hypot(LEAST_NOISE * r.ttft_s, prefill.doubt((1.0, r.isl, r.isl * r.isl)) * alone)
        if beyond > noise / _MOST_NOISE:
            found.append((r.name, (1.0, r.isl * kv_bytes_per_token), beyond, noise / beyond))
        else:
            why = f"its {r.ttft_s * 1e3:.3g} ms are not clearly above the {alone * 1e3:.3g} ms of the prompt alone"
            dropped.append(Dropped(r.name, "transfer time dropped", why))
    return found


def mixed_constants(
    readings: Sequence[Reading],
    step_s: Callable[[float, float], float],
    prefill: Part | None,
    *,
    dropped: list[Dropped],
) -> tuple[dict[str, Range], set[str]]:
    """kappa: decode steps of a colocated engine over those predicted; mixed_s: what a prompt's step adds besides.

    With the names of the runs they come from.
    """
    kappas, extras, used = [], [], set()
    for r in readings:
        if r.setting.kind != "mixed" or not math.isfinite(r.itl_s):
            continue
        used.add(r.name)
        kappas.append(r.itl_s / step_s(r.batch, r.isl + r.osl / 2))
        if prefill is None or not math.isfinite(r.itl_p99_s):
            continue
        prompt = (0.0, r.isl, r.isl * r.isl)
        whole = prefill.fit.at(prompt)
        beyond = r.itl_p99_s - r.itl_s - whole
        if beyond > 0:
            extras.append((beyond, math.hypot(LEAST_NOISE * r.itl_p99_s, prefill.doubt(prompt) * whole)))
        else:
            why = f"its P99 token time of {r.itl_p99_s * 1e3:.3g} ms does not hold a whole prompt"
            dropped.append(Dropped(r.name, "cost of a shared step dropped", why))
    out = {}
    if kappas:
        middle = statistics.median(kappas)
        width = math.exp(max(_SINGLE_DOUBT, *(abs(math.log(k / middle)) for k in kappas)))
        out["kappa"] = Range(middle / width, middle, middle * width)
    if extras:
        middle = statistics.median(beyond for beyond, _ in extras)
        reach = max(noise + abs(beyond - middle) for beyond, noise in extras)
        out["mixed_s"] = Range(max(0.0, middle - reach), middle, middle + reach)
    return out, used
