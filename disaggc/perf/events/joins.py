"""Fetched prompts on their way into a batch: a step that takes them up may take longer for it.

Where it does not, they join at the next boundary and no step is an event of its own. Knows no memory and no batch.
"""

from __future__ import annotations

from disaggc.perf.constants import Values
from disaggc.perf.events.flight import Flight


class Joins:
    """Those of one replica. waiting: for the step that runs to end; first: in their first step now."""

    __slots__ = ("_first", "_fixed_s", "_token_s", "costly", "waiting")

    def __init__(self, values: Values) -> None:
        self._fixed_s, self._token_s = values.join_s, values.join_token_s
        self.costly = self._fixed_s > 0 or self._token_s > 0
        self.waiting: list[Flight] = []
        self._first: list[Flight] = []

    def taken(self) -> list[Flight]:
        """All that wait."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def begin(self, flights: list[Flight]) -> float:
        """These are in the step that starts now; how much longer it takes for them."""
        self._first = flights
        return sum(self._fixed_s + self._token_s * flight.isl for flight in flights)

    def over(self, now: float) -> None:
        """That step ended: their first tokens."""
        for flight in self._first:
            if not flight.streaming:
                flight.first_s = now
        self._first = []

    def clear(self) -> list[Flight]:
        """The replica ended; those that waited."""
        self._first = []
        return self.taken()
