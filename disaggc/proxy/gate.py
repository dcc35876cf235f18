"""Admission before the first leg: a request gets a decode replica with room for it, waits its turn, or is refused.

Knows load and limits, not HTTP bodies. Who waits is told by a callback, and leaves by its own deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from disaggc.proxy.board import Total
from disaggc.proxy.bounds import held_bytes
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.fleet import Fleet, Replica
from disaggc.proxy.tally import Tally
from disaggc.routing.admission import ServedRate, WaitingLine, has_room


@dataclass(eq=False)
class Wish:
    """What a waiting request wants: room for `tokens`, near its prefix."""

    tokens: float
    prefix: bytes
    remote: bool
    granted: Callable[[Replica], None]
    """Called with the replica, in which it then has its room; never raises."""
    size: int
    """Bytes of its body."""


class Gate:
    """One worker's admission; in-flight numbers are those of all workers."""

    def __init__(self, fleet: Fleet, tally: Tally, *, workers: int) -> None:
        self._tally = tally
        self._workers = workers
        self._line: WaitingLine[Wish] = WaitingLine(0)
        self._served = ServedRate()
        self._pumping = False
        self._waiting_bytes = 0
        self.use(fleet)

    def use(self, fleet: Fleet) -> None:
        """A new generation."""
        self.fleet = fleet
        self._limits = fleet.table.admission
        self._share = fleet.table.proxies
        self._held_bytes = held_bytes(fleet.table)
        self._line.limit = (
            max(1, self._limits.queue // (self._workers * self._share)) if self._limits.queue else 0
        )

    def admit(self, tokens: float, prefix: bytes, now: float, *, remote: bool) -> Replica | None:
        """The replica, reserved; None when the request has to wait."""
        return None if self._line.entries else self._grant(tokens, prefix, now, remote=remote)

    def wait(self, wish: Wish, priority: int, now: float) -> None:
        """Wait in line; RefusedError 429 when that or its memory is full, 503 without replicas that could come back."""
        if not any(r.active for r in self.fleet.servers):
            raise self.closed()
        fits = not self._line.entries or self._waiting_bytes + wish.size <= self._held_bytes
        if not fits or not self._line.offer(wish, priority):
            if not self.open(now):
                raise self.closed()
            self._tally.cells[Total.REFUSED_QUEUE] += 1
            wait = self._served.retry_after(len(self._line), now)
            raise RefusedError(429, "the service is at its limit, try again later", retry_after=wait)
        self._waiting_bytes += wish.size
        self._tally.cells[Total.QUEUE] = len(self._line)

    def open(self, now: float) -> bool:
        """Whether there is a replica that may get requests."""
        return any(r.available(now) for r in self.fleet.servers)

    def closed(self) -> RefusedError:
        """What is said where there is none."""
        self._tally.cells[Total.REFUSED_NO_REPLICA] += 1
        return RefusedError(503, "no engine is available", retry_after=2)

    def give_up(self, wish: Wish) -> None:
        """A waiting request left or ran out of time."""
        self._line.leave(wish)
        self._waiting_bytes -= wish.size
        self._tally.cells[Total.QUEUE] = len(self._line)

    def release(self, replica: Replica, tokens: float, now: float) -> None:
        """A request ended: its room is free, and the next may come in."""
        self._tally.cells[Total.TOKENS_OPEN] -= tokens
        replica.release(tokens)
        self._served.finished(now)
        if self._line.entries:
            self.pump(now)

    def pump(self, now: float) -> None:
        """Let in who fits, in order. One that ends at once frees its room for the next turn of the same loop."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while (wish := self._line.first()) is not None:
                replica = self._grant(wish.tokens, wish.prefix, now, remote=wish.remote)
                if replica is None:
                    break
                self._line.take()
                self._waiting_bytes -= wish.size
                wish.granted(replica)
        finally:
            self._pumping = False
            self._tally.cells[Total.QUEUE] = len(self._line)

    def _grant(self, ask: float, prefix: bytes, now: float, *, remote: bool) -> Replica | None:
        limits, share, fleet = self._limits, self._share, self.fleet
        if (limits.max_requests is not None or limits.max_tokens is not None) and not self._service_has_room(
            ask
        ):
            return None
        if (
            remote
            and limits.prefill_tokens is not None
            and not self._prefill_has_room(limits.prefill_tokens, now)
        ):
            return None
        fitting = [
            r
            for r in fleet.servers
            if r.available(now)
            and has_room(r, limits, requests=r.requests * share, tokens=r.tokens * share, ask=ask)
        ]
        replica = fleet.for_decode.choose(fitting, prefix)
        if replica is not None:
            self._tally.cells[Total.TOKENS_OPEN] += ask
            replica.take(ask)
        return replica

    def _service_has_room(self, ask: float) -> bool:
        share, limits, servers = self._share, self._limits, self.fleet.servers
        requests = sum((r.requests for r in servers), 0.0) * share
        if limits.max_requests is not None and requests + share > limits.max_requests:
            return False
        tokens = sum((r.tokens for r in servers), 0.0) * share
        return limits.max_tokens is None or requests == 0 or tokens + ask <= limits.max_tokens

    def _prefill_has_room(self, limit: int, now: float) -> bool:
        prefills = [r for r in self.fleet.prefills if r.available(now)]
        return not prefills or any(r.tokens * self._share < limit for r in prefills)
