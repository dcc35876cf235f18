"""A request without an engine to go on with, until one of that role accepts connections, or its patience ends.

It knocks: opens a connection and asks nothing, so that waiting costs no try, no prefill and no circuit. Driven by the
sweep. Knows no bytes.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from disaggc.proxy.board import Total
from disaggc.proxy.failures import LegError, RefusedError

if TYPE_CHECKING:
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.generation import Generation
    from disaggc.proxy.upstream import Connection

FIRST_S: Final = 0.1
LONGEST_S: Final = 1.0
"""Between two rounds over the replicas of the role: doubled from one to the other, as restarts take seconds."""
RETRY_AFTER_S: Final = 2


PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
"""Before the next try on a replica that has just failed one: doubled from one to the other."""


class Pause:
    """A try that waits a moment, as the engine it is for has just failed one; its request's `pause` until then."""

    __slots__ = ("_until", "_x")

    def __init__(self, x: Generation, seconds: float, now: float) -> None:
        self._x = x
        self._until = now + seconds

    def tick(self, now: float) -> None:
        """Called by the sweep."""
        if now >= self._until:
            self._x.try_again(now)


class Wait:
    """One wait; its request's `pause` until that is over."""

    __slots__ = ("_knocked", "_next", "_prefill", "_refused", "_since", "_step", "_until", "_x")

    def __init__(self, x: Generation, *, prefill: bool, now: float) -> None:
        self._x = x
        self._prefill = prefill
        self._since = now
        self._until = min(x.last, now + x.service.bounds.queue_s - x.waited)
        self._step = FIRST_S
        self._next = now + FIRST_S
        self._refused: set[str] = set()
        """Where nobody opened in this round."""
        self._knocked: Replica | None = None
        """While a connection to it is being opened."""
        if now >= self._until or not any(r.active for r in self._role):
            raise self._refusal()
        x.service.tally.cells[Total.WAITED_FOR_ENGINE] += 1

    @property
    def _role(self) -> tuple[Replica, ...]:
        fleet = self._x.service.fleet
        return fleet.prefills if self._prefill else fleet.servers

    def tick(self, now: float) -> None:
        """Called by the sweep."""
        if now >= self._until:
            self._x.fall(self._refusal())
        elif self._knocked is None and now >= self._next:
            self._knock(now)

    def _knock(self, now: float) -> None:
        x = self._x
        fleet = x.service.fleet
        chooser = fleet.for_prefill if self._prefill else fleet.for_decode
        among = [r for r in self._role if r.address not in self._refused]
        replica = fleet.choose(among, chooser, now=now, prefix=x.prefix)
        if replica is None:
            self._refused.clear()
            self._next = now + self._step
            self._step = min(LONGEST_S, 2 * self._step)
            return
        self._knocked = replica
        replica.pool.open(self, min(x.service.bounds.connect_s, self._until - now))

    def opened(self, connection: Connection) -> None:
        """Somebody is there: the request goes on, on this connection."""
        x, replica = self._x, self._knocked
        if replica is None:
            raise RuntimeError("a connection that nobody opened")
        replica.pool.put_back(connection)
        if x.pause is self:
            now = monotonic()
            x.waited += now - self._since
            x.go_on(replica, decode=not self._prefill, now=now)

    def failed(self, error: LegError) -> None:
        """Not there; the next one."""
        del error
        if self._knocked is not None:
            self._refused.add(self._knocked.address)
            self._knocked = None

    def _refusal(self) -> RefusedError:
        self._x.service.tally.cells[Total.REFUSED_NO_REPLICA] += 1
        role = "prefill" if self._prefill else "decode"
        return RefusedError(503, f"no {role} engine is available", retry_after=RETRY_AFTER_S)
