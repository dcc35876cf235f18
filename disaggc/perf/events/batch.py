"""The running sequences of one replica and how far they are: all advance together, so one count of steps serves all.

Between changes the step time is a straight line over the steps, so any stretch of time is one square root. Knows no
memory limit, no prompts and no calendar.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from disaggc.perf.engine_model import StepTimes
from disaggc.perf.events.curve import Curve, steps_in, time_of
from disaggc.perf.events.flight import Flight
from disaggc.perf.events.tally import Histogram

SNAP = 1e-6
"""Steps by which a count may miss a step boundary through rounding."""
_COARSE_S = 1e5
"""From this time on the clock itself may be coarser than that: at 1e9 s it goes in steps of 0.1 us."""
_TICKS = 4.0
"""Ticks of the clock that two sums of times may differ by."""


class Batch:
    """Sequences in decode. per_step: output tokens each gets in one step; steps: done since the start, a real."""

    __slots__ = (
        "_counts", "_curve", "_ends", "_entered", "_line", "at_s", "busy_s", "context", "itl", "per_step",
        "running", "sequence_s", "size", "snap_steps", "steps",
    )  # fmt: skip

    def __init__(self, times: StepTimes, kappa: float, per_step: float, *, itl: list[Histogram]) -> None:
        self._curve, self.per_step, self.itl = Curve(times, kappa), per_step, itl
        self._counts = [0] * len(itl)
        self._ends: list[tuple[float, int, int, Flight]] = []
        self._entered = 0
        self._line = (0.0, 0.0)
        self.running: dict[Flight, None] = {}
        self.size = 0
        self.context = self.steps = self.at_s = 0.0
        self.busy_s = self.sequence_s = 0.0
        self.snap_steps = SNAP

    @property
    def step_s(self) -> float:
        """The present step time; the batch is not empty."""
        fixed, slope = self._line
        return fixed + slope * self.context / self.size

    def pass_time(self, now: float, *, stepping: bool) -> None:
        """Time goes by. stepping: within a step that computes prompts, whose token comes at its end."""
        passed, self.at_s = now - self.at_s, now
        size = self.size
        if passed <= 0 or not (size or stepping):
            return
        self.busy_s += passed
        self.sequence_s += size * passed
        if stepping:
            return
        fixed, slope = self._line
        step, growth = fixed + slope * self.context / size, slope * self.per_step
        if now > _COARSE_S:
            self.snap_steps = max(SNAP, _TICKS * (math.ulp(now) / step + math.ulp(self.steps)))
        steps = steps_in(passed, step, growth)
        self.steps += steps
        self.context += steps * size * self.per_step
        for stream, count in enumerate(self._counts):
            if count:
                self.itl[stream].add_line(step, step + growth * steps, steps * count)

    def until(self, steps: float) -> float:
        """Seconds until so many steps more are done with the present sequences."""
        return time_of(steps, self.step_s, self._line[1] * self.per_step)

    def to_boundary(self) -> float:
        """Steps left of the one that runs; 0 at a boundary."""
        left = math.ceil(self.steps - self.snap_steps) - self.steps
        return left if left > self.snap_steps else 0.0

    def snap(self) -> None:
        """Take away what rounding added to a whole number of steps."""
        nearest = round(self.steps)
        if abs(self.steps - nearest) < self.snap_steps:
            self.steps = float(nearest)

    def one_step(self, duration_s: float) -> None:
        """A step with prompts starts: every sequence will wait this long for its token."""
        for stream, count in enumerate(self._counts):
            if count:
                self.itl[stream].add(duration_s, count)

    def stepped(self) -> None:
        """That step is over."""
        self.steps = float(math.floor(self.steps + 1 + self.snap_steps))
        self.context += self.size * self.per_step

    def join(self, flight: Flight, steps: float) -> float:
        """In the batch from the next boundary on, for so many steps; that boundary."""
        start = flight.begun = math.ceil(self.steps - self.snap_steps)
        self.running[flight] = None
        self._counts[flight.stream] += 1
        self.size += 1
        context = flight.isl + (flight.osl - flight.left)
        self.context += context
        flight.base = context - self.steps * self.per_step
        self._relined()
        self._entered += 1
        heapq.heappush(self._ends, (start + max(1.0, steps), self._entered, flight.epoch, flight))
        return float(start)

    def leave(self, flight: Flight) -> float:
        """Out of the batch; the tokens of context it had."""
        context = flight.base + self.steps * self.per_step
        del self.running[flight]
        self._counts[flight.stream] -= 1
        self.size -= 1
        self.context = self.context - context if self.size else 0.0
        self._relined()
        return context

    def finished(self) -> Iterator[Flight]:
        """Whoever has all tokens, taken out one by one."""
        reached = self.steps + self.snap_steps
        while self._ends and self._ends[0][0] <= reached:
            flight = heapq.heappop(self._ends)[3]
            self.leave(flight)
            yield flight
            self._tidy()

    def preempted(self) -> Flight:
        """The last to join, out of the batch, with its whole context to be computed again."""
        flight = next(reversed(self.running))
        self.leave(flight)
        flight.epoch += 1
        flight.paused_s = self.at_s
        if flight.first_s > self.at_s:  # the first token was still to come
            flight.first_s, flight.paused_s = -1.0, -1.0
        whole = max(
            0, math.floor(self.steps - flight.begun + self.snap_steps)
        )  # the token of the step that runs is lost
        flight.left = max(1.0, flight.left - whole * self.per_step)
        flight.done, flight.todo = 0.0, flight.isl + flight.osl - flight.left
        self._tidy()
        return flight

    def to_end(self) -> float:
        """Steps until the first sequence has all tokens."""
        return max(0.0, self._ends[0][0] - self.steps)

    def clear(self) -> list[Flight]:
        """All of them, forgotten."""
        held = list(self.running)
        self.running.clear()
        self._ends.clear()
        self._counts = [0] * len(self._counts)
        self.size, self.context = 0, 0.0
        return held

    def _tidy(self) -> None:
        """No end of a sequence that was preempted stays in front."""
        while self._ends and self._ends[0][2] != self._ends[0][3].epoch:
            heapq.heappop(self._ends)

    def _relined(self) -> None:
        if self.size:
            self._line = self._curve.line(self.size, self.context / self.size)
