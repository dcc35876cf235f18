"""Admission before the first leg: a request gets a decode replica with room for it, waits its turn, or is refused.

Knows load and limits, not HTTP bodies. Waiting ends by the caller's deadline.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic

from disaggc.proxy.board import Total
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.fleet import Fleet, Replica
from disaggc.proxy.tally import Tally
from disaggc.routing.admission import ServedRate, WaitingLine, has_room


@dataclass(slots=True, eq=False)
class Wish:
    """What a request wants: room for `tokens`, at a priority, near its prefix."""

    tokens: float
    priority: int
    prefix: bytes
    remote: bool
    granted: asyncio.Future[Replica] | None = field(default=None)


class Gate:
    """One worker's admission; in-flight numbers are those of all workers."""

    def __init__(self, fleet: Fleet, tally: Tally, *, workers: int) -> None:
        self._tally = tally
        self._workers = workers
        self._line: WaitingLine[Wish] = WaitingLine(0)
        self._served = ServedRate()
        self.use(fleet)

    def use(self, fleet: Fleet) -> None:
        """A new generation."""
        self.fleet = fleet
        self._limits = fleet.table.admission
        self._line.limit = (
            max(1, self._limits.queue // (self._workers * fleet.table.proxies)) if self._limits.queue else 0
        )

    def admit(self, wish: Wish) -> Replica | asyncio.Future[Replica]:
        """The replica, reserved; or the future of one; RefusedError 429 when the line is full, 503 without replicas."""
        now = monotonic()
        replica = None if len(self._line) else self._grant(wish, now)
        if replica is not None:
            return replica
        if not any(r.available(now) for r in self.fleet.servers):
            self._tally.cells[Total.REFUSED_NO_REPLICA] += 1
            raise RefusedError(503, "no engine is available", retry_after=2)
        wish.granted = asyncio.get_running_loop().create_future()
        if not self._line.offer(wish, wish.priority):
            self._tally.cells[Total.REFUSED_QUEUE] += 1
            wait = self._served.retry_after(len(self._line), now)
            raise RefusedError(429, "the service is at its limit, try again later", retry_after=wait)
        self._tally.cells[Total.QUEUE] = len(self._line)
        return wish.granted

    def give_up(self, wish: Wish) -> None:
        """A waiting request left or ran out of time."""
        self._line.leave(wish)
        self._tally.cells[Total.QUEUE] = len(self._line)
        future = wish.granted
        if future is not None and future.done() and not future.cancelled() and future.exception() is None:
            self.release(future.result(), wish.tokens)

    def release(self, replica: Replica, tokens: float) -> None:
        """A request ended: its room is free, and the next may come in."""
        self._tally.cells[Total.TOKENS_OPEN] -= tokens
        replica.release(tokens)
        self._served.finished(monotonic())
        if len(self._line):
            self.pump()

    def pump(self) -> None:
        """Let in who fits, in order."""
        now = monotonic()
        while (wish := self._line.first()) is not None:
            if wish.granted is None or wish.granted.done():
                self._line.take()
                continue
            replica = self._grant(wish, now)
            if replica is None:
                break
            self._line.take()
            wish.granted.set_result(replica)
        self._tally.cells[Total.QUEUE] = len(self._line)

    def _grant(self, wish: Wish, now: float) -> Replica | None:
        if not self._service_has_room(wish.tokens) or not (not wish.remote or self._prefill_has_room(now)):
            return None
        replica = self.fleet.choose(
            self.fleet.servers,
            self.fleet.for_decode,
            now=now,
            prefix=wish.prefix,
            fits=lambda r: self._fits(r, wish.tokens),
        )  # fmt: skip
        if replica is not None:
            self._tally.cells[Total.TOKENS_OPEN] += wish.tokens
            replica.take(wish.tokens)
        return replica

    def _fits(self, replica: Replica, ask: float) -> bool:
        share = self.fleet.table.proxies
        return has_room(
            replica.entry,
            self._limits,
            requests=replica.requests * share,
            tokens=replica.tokens * share,
            ask=ask,
        )

    def _service_has_room(self, ask: float) -> bool:
        share = self.fleet.table.proxies
        limits = self._limits
        if limits.max_requests is None and limits.max_tokens is None:
            return True
        servers = self.fleet.servers
        requests = sum(r.requests for r in servers) * share
        if limits.max_requests is not None and requests + share > limits.max_requests:
            return False
        tokens = sum(r.tokens for r in servers) * share
        return limits.max_tokens is None or requests == 0 or tokens + ask <= limits.max_tokens

    def _prefill_has_room(self, now: float) -> bool:
        limit = self._limits.prefill_tokens
        if limit is None:
            return True
        prefills = [r for r in self.fleet.prefills if r.available(now)]
        return not prefills or any(r.tokens * self.fleet.table.proxies < limit for r in prefills)
