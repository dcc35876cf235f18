"""Decode step times as straight lines over the context, one per batch: what lets the simulator skip over steps."""

from __future__ import annotations

import math

from disaggc.perf.engine_model import StepTimes

_FAR = float(1 << 22)
"""A context beyond every sliding window."""


class Curve:
    """decode(batch, context) = fixed + slope * context on either side of the sliding window; exact, since it is."""

    __slots__ = ("_known", "_scale", "_times", "_window")

    def __init__(self, times: StepTimes, scale: float) -> None:
        self._times, self._scale = times, scale
        self._window = float(times.work.sliding_window)
        self._known: dict[int, tuple[float, float, float]] = {}

    def line(self, batch: int, context: float) -> tuple[float, float]:
        """(fixed, slope) near this context per sequence, seconds and seconds per token."""
        known = self._known.get(batch)
        if known is None:
            known = self._known[batch] = self._measured(batch)
        fixed, slope, inside = known
        if context < self._window:
            return fixed, slope + inside
        return fixed + inside * self._window, slope

    def _measured(self, batch: int) -> tuple[float, float, float]:
        decode, scale = self._times.decode, self._scale
        fixed = decode(batch, 0.0)
        slope = (decode(batch, 2 * _FAR) - decode(batch, _FAR)) / _FAR
        inside = (decode(batch, self._window) - fixed) / self._window - slope if self._window else 0.0
        return fixed * scale, slope * scale, inside * scale


def steps_in(time_s: float, step_s: float, growth: float) -> float:
    """Steps done in a time when the first takes step_s and each further one `growth` longer."""
    if growth * time_s < 1e-9 * step_s * step_s:
        return time_s / step_s
    return (math.sqrt(step_s * step_s + 2 * growth * time_s) - step_s) / growth


def time_of(steps: float, step_s: float, growth: float) -> float:
    """The inverse of `steps_in`."""
    return steps * (step_s + growth * steps / 2)
