"""Readings -> readings that can be fitted, with everything that was left aside and why.

Knows what spoils a benchmark: failed requests, the first wave of a closed loop, a warm prefix cache, mixed units.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from disaggc.perf.calibration.reading import UNKNOWN, Dropped, Reading, Requests

_MOST_FAILED = 0.02
"""Share of failed requests up to which a run still says what an engine does."""
_WAVES = 3.0
"""Waves of a closed loop that a run needs before its first wave no longer decides its medians."""
_UNIT_GAP = 20.0
"""Factor between a run's end-to-end time and the sum of its parts from which units must be mixed."""


def checked(readings: Iterable[Reading], peak_prompt_s: float | None) -> tuple[list[Reading], list[Dropped]]:
    """The runs worth fitting. peak_prompt_s: seconds one prompt token takes at the accelerator's peak, if known."""
    kept: list[Reading] = []
    dropped: list[Dropped] = []
    for reading in readings:
        why = _unusable(reading)
        if why is not None:
            dropped.append(Dropped(reading.name, "run dropped", why))
            continue
        kept.append(_cached(_first_wave(reading, dropped), peak_prompt_s, dropped))
    return kept, dropped


def _unusable(reading: Reading) -> str | None:
    if reading.completed == 0:
        return "no request completed"
    if reading.failed > _MOST_FAILED * max(1, reading.sent):
        return f"{reading.failed} of {reading.sent} requests failed"
    if not (math.isfinite(reading.isl) and math.isfinite(reading.osl) and reading.osl >= 1):
        return "it does not say how many tokens went in and out"
    parts = reading.ttft_s + max(0.0, reading.osl - 1) * reading.tpot_s
    if math.isfinite(parts) and math.isfinite(reading.e2e_s) and parts > 0:
        gap = max(parts / reading.e2e_s, reading.e2e_s / parts)
        if gap > _UNIT_GAP:
            return f"its end-to-end time is {reading.e2e_s:.4g} s and its parts are {parts:.4g} s: units are mixed"
    if reading.rate == math.inf and math.isnan(reading.concurrency) and reading.completed > 1:
        return "all requests were sent at once: set `--max-concurrency` or `--request-rate`"
    return None


def _first_wave(reading: Reading, dropped: list[Dropped]) -> Reading:
    """Without the requests that all started at once: cut where they are listed, else their first tokens are dropped."""
    cap = reading.concurrency
    if reading.rate < math.inf or not math.isfinite(cap) or cap <= 1:
        return reading
    if reading.requests is not None and len(reading.requests.ttfts) >= 2 * cap:
        cut = int(cap)
        dropped.append(Dropped(reading.name, f"first {cut} requests dropped", "they all started at once"))
        return _without_first(reading, reading.requests, cut)
    if reading.completed < _WAVES * cap:
        waves = reading.completed / cap
        dropped.append(
            Dropped(
                reading.name,
                "first-token time dropped",
                f"{waves:.1f} waves of {cap:.0f} requests are too few",
            )
        )
        # the share of time spent in decode is kept: it is what the batch follows from
        return replace(reading, ttft_s=UNKNOWN, e2e_s=max(0.0, reading.osl - 1) * reading.tpot_s)
    return reading


def _without_first(reading: Reading, requests: Requests, cut: int) -> Reading:
    ttfts, times = requests.ttfts[cut:], requests.token_times[cut:]
    ends = [
        first + (0.0 if math.isnan(each) else each * (out - 1))
        for first, each, out in zip(ttfts, times, requests.outputs[cut:], strict=True)
    ]
    return replace(
        reading,
        isl=statistics.fmean(requests.prompts[cut:]),
        osl=statistics.fmean(requests.outputs[cut:]),
        ttft_s=statistics.median(ttfts),
        tpot_s=_median(times),
        e2e_s=statistics.median(ends),
    )


def _median(values: Sequence[float]) -> float:
    found = [v for v in values if math.isfinite(v)]
    return statistics.median(found) if found else UNKNOWN


def _cached(reading: Reading, peak_prompt_s: float | None, dropped: list[Dropped]) -> Reading:
    """A prompt faster than the accelerator's peak was not computed: a warm prefix cache answered."""
    if peak_prompt_s is None or not math.isfinite(reading.ttft_s):
        return reading
    least = reading.isl * peak_prompt_s
    if reading.ttft_s >= least:
        return reading
    why = (
        f"{reading.isl:.0f} prompt tokens in {reading.ttft_s * 1000:.3g} ms beat the accelerator's peak "
        f"({least * 1000:.3g} ms): a prefix cache answered"
    )
    dropped.append(Dropped(reading.name, "first-token time dropped", why))
    return replace(reading, ttft_s=UNKNOWN)
