"""Readings -> readings that can be fitted, with everything that was left aside and why.

Knows what spoils a benchmark: failed requests, the first wave of a closed loop, a warm prefix cache, mixed units.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from disaggc.perf.calibration.reading import UNKNOWN, Dropped, Reading, Requests
from disaggc.units import counted

_MOST_FAILED = 0.02
"""Share of failed requests up to which a run still says what an engine does."""
_WAVES = 3.0
"""Waves of a closed loop that a run needs before its first wave no longer decides its medians."""
_UNIT_GAP = 20.0
"""Factor between a run's end-to-end time and the sum of its parts from which units must be mixed."""
_FLIGHT_GAP = 50.0
"""The same between requests in flight by Little's law and the cap: queues and drains of short runs stay far below."""
_MOST_FLIGHT = 3.0
"""The same upwards: a cap cannot be exceeded, but a median stands for the mean."""
_UNIT_SURELY = 50.0
"""Factor below the roofline that no prefix cache with a front end of its own, and no speculation, explains."""
_LEAST_ISL, _LONGEST = 0.5, 1e8
"""Mean tokens of a request that there can be; InferenceX states nominal lengths, of which nine tenths are sent."""
_UNIT_SLOW = 2000.0
"""Factor above a single read of the weights that no batch and no context reaches: full ones take a hundred."""


class Floor(Protocol):
    """What no engine of the kind that was measured can beat."""

    def least_step_s(self) -> float:
        """Seconds of a decode step."""

    def least_prompt_s(self, tokens: float) -> float:
        """Seconds of a prompt that is computed."""


def checked(readings: Iterable[Reading], floor: Floor | None) -> tuple[list[Reading], list[Dropped]]:
    """The runs worth fitting. floor: None where the catalog does not know the model."""
    kept: list[Reading] = []
    dropped: list[Dropped] = []
    for reading in readings:
        why = _unusable(reading) or _in_another_unit(reading, floor)
        if why is not None:
            dropped.append(Dropped(reading.name, "run dropped", why))
            continue
        timed = _first_wave(reading, dropped)
        kept.append(timed if floor is None else _possible(timed, floor, dropped))
    return kept, dropped


def _unusable(reading: Reading) -> str | None:
    if reading.completed == 0:
        return "no request completed"
    return _incomplete(reading) or _in_mixed_units(reading) or _in_flight(reading)


def _incomplete(reading: Reading) -> str | None:
    if reading.failed > _MOST_FAILED * max(1, reading.sent):
        return f"{reading.failed:,} of {counted(reading.sent, 'request')} failed"
    if reading.completed > reading.sent:
        sent = counted(reading.sent, "request")
        return f"{reading.completed:,} of {sent} completed: the counts contradict each other"
    if not (_LEAST_ISL <= reading.isl <= _LONGEST and 1 <= reading.osl <= _LONGEST):
        return "it does not say how many tokens went in and out"
    if not any(math.isfinite(x) for x in (reading.ttft_s, reading.tpot_s, reading.itl_s)):
        return "it holds no first-token time and no token time"
    if reading.rate == math.inf and math.isnan(reading.concurrency) and reading.completed > 1:
        return "all requests were sent at once: set `--max-concurrency` or `--request-rate`"
    return None


def _in_mixed_units(reading: Reading) -> str | None:
    parts = reading.ttft_s + max(0.0, reading.osl - 1) * reading.tpot_s
    if math.isfinite(parts) and math.isfinite(reading.e2e_s) and parts > 0:
        gap = max(parts / reading.e2e_s, reading.e2e_s / parts)
        if gap > _UNIT_GAP:
            return f"its end-to-end time is {reading.e2e_s:.4g} s and its parts are {parts:.4g} s: units are mixed"
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


def _in_flight(reading: Reading) -> str | None:
    """Little's law: requests per second times their time is how many are in flight, and a full cap says so too."""
    whole, cap = reading.end_to_end_s, reading.concurrency
    if not (math.isfinite(whole) and whole > 0 and reading.duration_s > 0):
        return None
    if whole > _UNIT_GAP * reading.duration_s:
        return f"a request takes {whole:.4g} s and the whole run {reading.duration_s:.4g} s: units are mixed"
    flight = reading.completed * whole / reading.duration_s
    if reading.rate < math.inf or not math.isfinite(cap) or 1 / _FLIGHT_GAP < flight / cap < _MOST_FLIGHT:
        return None
    return (
        f"{reading.completed} requests of {whole:.4g} s in {reading.duration_s:.4g} s are {flight:.3g} in flight, "
        f"not {cap:.6g}: units are mixed"
    )


def _in_another_unit(reading: Reading, floor: Floor | None) -> str | None:
    """Times that no engine of this kind could reach are seconds where milliseconds belong, or microseconds."""
    if floor is None:
        return None
    seen = {
        "first token": (reading.ttft_s, floor.least_prompt_s(reading.isl)),
        "token time": (reading.tpot_s, floor.least_step_s()),
    }
    known = {name: pair for name, pair in seen.items() if math.isfinite(pair[0])}
    beaten = [name for name, (time, least) in known.items() if time < least]
    surely = len(beaten) == len(seen) or any(time * _UNIT_SURELY < least for time, least in known.values())
    if surely:
        name = min(known, key=lambda each: known[each][0] / known[each][1])
        time, least = known[name]
        also = f", and its {' and its '.join(n for n in beaten if n != name)} too" if len(beaten) > 1 else ""
        return (
            f"its {name} of {time * 1000:.3g} ms is {least / time:.3g} times faster than these accelerators can be"
            f"{also}: another unit, or another model"
        )
    if reading.tpot_s > _UNIT_SLOW * floor.least_step_s():
        return (
            f"its token time of {reading.tpot_s:.3g} s is {reading.tpot_s / floor.least_step_s():.3g} times that of "
            "reading the weights once: another unit, or another model"
        )
    return None


def _possible(reading: Reading, floor: Floor, dropped: list[Dropped]) -> Reading:
    """Without what beats the peak: a prompt that a warm prefix cache answered, tokens that were guessed."""
    prompt, step = floor.least_prompt_s(reading.isl), floor.least_step_s()
    if reading.ttft_s < prompt:
        why = (
            f"{reading.isl:.0f} prompt tokens in {reading.ttft_s * 1000:.3g} ms beat the accelerators' peak "
            f"({prompt * 1000:.3g} ms): a prefix cache answered"
        )
        dropped.append(Dropped(reading.name, "first-token time dropped", why))
        reading = replace(reading, ttft_s=UNKNOWN)
    if min(_known(reading.tpot_s), _known(reading.itl_s)) < step and math.isnan(reading.acceptance):
        fast = min(_known(reading.tpot_s), _known(reading.itl_s))
        why = (
            f"{fast * 1000:.3g} ms beat a single read of the weights at full bandwidth ({step * 1000:.3g} ms): "
            "speculative decoding, or another model"
        )
        dropped.append(Dropped(reading.name, "token times dropped", why))
        reading = replace(reading, tpot_s=UNKNOWN, itl_s=UNKNOWN, itl_p99_s=UNKNOWN)
    return reading


def _known(value: float) -> float:
    return value if math.isfinite(value) else math.inf
