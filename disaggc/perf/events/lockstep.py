"""Steps of prefill ranks: each rank for itself, or all ranks of a replica together where experts are spread over them.

Ranks that exchange tokens in every layer end their step together: the one with most to do sets the time, and what comes
meanwhile waits for all of them. Knows neither prompts nor memory: the ranks do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from disaggc.perf.events.calendar import Calendar

if TYPE_CHECKING:
    from disaggc.perf.events.prefill_engine import PrefillEngine, Step


class Lockstep:
    """The ranks that step together; one rank alone is a group of one."""

    __slots__ = ("_calendar", "_version", "ranks", "running")

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self.ranks: list[PrefillEngine] = []
        self.running = False
        self._version = 0

    def go_on(self, now: float) -> None:
        """Something came or some room is free: the next step starts unless one runs."""
        if self.running:
            return
        self._version += 1
        alone = len(self.ranks) == 1
        steps = [step for rank in self.ranks if (step := rank.take(now, alone=alone)) is not None]
        if steps:
            self.running = True
            lasts = max(step.stage_s for step in steps)
            self._calendar.enter(now + lasts, self._stepped, (self._version, steps, lasts))
            return
        ends = [end for rank in self.ranks if (end := rank.lease_ends_s) is not None]
        if ends:
            self._calendar.enter(min(ends), self._look_again, self._version)

    def stopped(self) -> None:
        """The replica ended; a step that ran never ends."""
        self.running = False
        self._version += 1

    def _look_again(self, now: float, version: int) -> None:
        if version == self._version:
            self.go_on(now)

    def _stepped(self, now: float, done: tuple[int, list[Step], float]) -> None:
        version, steps, lasted_s = done
        if version != self._version:
            return
        self.running = False
        for step in steps:
            step.rank.stepped(step, now, lasted_s=lasted_s)
        self.go_on(now)
