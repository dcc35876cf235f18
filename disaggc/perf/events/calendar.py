"""What happens next: a heap of events in time order, equals as they were entered. Knows no event's meaning."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Event = Callable[[float, Any], None]
"""Called with the time and what was entered with it."""


class Calendar:
    """Simulated time and the events to come."""

    __slots__ = ("_entered", "_heap", "handled")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Event, Any]] = []
        self._entered = 0
        self.handled = 0

    def enter(self, at_s: float, event: Event, subject: object = None) -> None:
        """Something will happen."""
        self._entered += 1
        heapq.heappush(self._heap, (at_s, self._entered, event, subject))

    def run(self, watch: Callable[[float], bool]) -> float:
        """Everything in order until nothing is left or `watch`, asked before each event, says no; the last time."""
        heap, pop = self._heap, heapq.heappop
        now = 0.0
        while heap:
            if not watch(heap[0][0]):
                break
            now, _, event, subject = pop(heap)
            self.handled += 1
            event(now, subject)
        return now
