"""A run over time: the pools looked at in even intervals that widen as the run grows. Knows engines' counters only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from disaggc.perf.events.front import Seat
from disaggc.perf.events.result import Moment

_MOST = 240
"""Moments kept; beyond it every second one goes and the interval doubles."""
_FIRST_S = 0.25


@dataclass(slots=True)
class Timeline:
    """Moments of each pool, and how many requests the proxy kept waiting."""

    pools: Sequence[Sequence[Seat]]
    kv_tokens: Sequence[float]
    next_s: float = 0.0
    moments: list[list[Moment]] = field(init=False)
    held: list[tuple[float, int]] = field(default_factory=list)
    _every_s: float = _FIRST_S

    def __post_init__(self) -> None:
        """Nothing seen."""
        self.moments = [[] for _ in self.pools]

    def reach(self, until_s: float, waiting: int) -> None:
        """Look at everything at each interval before this time; nothing changed since the last event."""
        while self.next_s <= until_s:
            self._look(self.next_s, waiting)
            self.next_s += self._every_s
            if len(self.held) >= _MOST:
                self._widen()

    def _look(self, now: float, waiting: int) -> None:
        self.held.append((now, waiting))
        for pool, capacity, moments in zip(self.pools, self.kv_tokens, self.moments, strict=True):
            moments.append(_moment(pool, capacity, now))

    def _widen(self) -> None:
        self._every_s *= 2
        del self.held[1::2]
        for moments in self.moments:
            del moments[1::2]
        self.next_s = self.held[-1][0] + self._every_s


def _moment(pool: Sequence[Seat], capacity: float, now: float) -> Moment:
    running = waiting = used = 0.0
    for seat in pool:
        if seat.engine is not None:
            running += seat.engine.batch.size
            waiting += seat.engine.waiting
            used += seat.engine.kv_used
        for rank in seat.ranks:
            running += rank.working
            waiting += rank.waiting
            used += rank.kv_used
    return Moment(now, running, waiting, used / capacity if capacity else 0.0, sum(s.up for s in pool))
