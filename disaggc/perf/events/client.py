"""The clients of a run as `vllm bench serve` is one: requests on time, held back at the cap, first come first sent.

Time that the client holds a request back counts in none of its latencies. Knows no proxy and no engine.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

from disaggc.perf.events.calendar import Calendar
from disaggc.perf.events.flight import Flight
from disaggc.perf.events.load import Load, Offered, Stream


class Caller:
    """The client of one stream."""

    def __init__(
        self, number: int, stream: Stream, offered: Sequence[Offered], *, calendar: Calendar,
        send: Callable[[Flight, float], None],
    ) -> None:  # fmt: skip
        self.stream = stream
        self.ended: list[Flight] = []
        self.last_sent_s = 0.0
        self._number, self._offered = number, offered
        self._calendar, self._send = calendar, send
        self._next = self._in_flight = 0
        self._held: deque[Flight] = deque()

    def start(self) -> None:
        """The first request is on its way."""
        self._enter()

    def _enter(self) -> None:
        if self._next < len(self._offered):
            self._calendar.enter(self._offered[self._next].at_s, self._due)

    def _due(self, now: float, _subject: object) -> None:
        ask = self._offered[self._next]
        self._next += 1
        flight = Flight(self._number, ask)
        if self._in_flight < self.stream.cap:
            self._go(flight, now)
        else:
            self._held.append(flight)
        self._enter()

    def _go(self, flight: Flight, now: float) -> None:
        self._in_flight += 1
        self.last_sent_s = flight.sent_s = now
        self._send(flight, now)

    def over(self, flight: Flight, now: float) -> None:
        """One request ended, well or not."""
        self.ended.append(flight)
        self._in_flight -= 1
        if self._held:
            self._calendar.enter(now, self._let_go)

    def _let_go(self, now: float, _subject: object) -> None:
        if self._held and self._in_flight < self.stream.cap:
            self._go(self._held.popleft(), now)


def callers(
    load: Load, seed: int, calendar: Calendar, *, send: Callable[[Flight, float], None]
) -> tuple[Caller, ...]:
    """One for each stream; every stream has a generator of its own, so that one does not disturb the others."""
    return tuple(
        Caller(
            number, stream,
            stream.offered(random.Random(f"{seed}/{number}/{stream.name}")),  # noqa: S311 - a reproducible draw
            calendar=calendar, send=send,
        )
        for number, stream in enumerate(load.streams)
    )  # fmt: skip
