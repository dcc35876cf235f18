"""The proxy of a run: admission, the choice of replicas, retries.

The decisions are routing's own code, as in the real proxy; only waiting and sending are simulated. Knows no step times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from disaggc.ir.plan import Role
from disaggc.perf.events.calendar import Calendar
from disaggc.perf.events.decode_engine import DecodeEngine
from disaggc.perf.events.flight import Flight, Loss
from disaggc.perf.events.prefill_engine import PrefillEngine
from disaggc.perf.events.setting import Front
from disaggc.routing.admission import WaitingLine, has_room
from disaggc.routing.choice import Chooser
from disaggc.routing.roles import Path, path_for
from disaggc.routing.table import ReplicaEntry


@dataclass(slots=True, eq=False)
class Seat:
    """One replica as the proxy sees it. work: outstanding tokens; ranks: its prefill engines, by data-parallel rank."""

    entry: ReplicaEntry
    role: Role
    weight: float = 1.0
    work: float = 0.0
    requests: int = 0
    engine: DecodeEngine | None = None
    ranks: tuple[PrefillEngine, ...] = ()
    up: bool = True

    @property
    def address(self) -> str:
        """Identity."""
        return self.entry.address

    def take(self, tokens: float) -> None:
        """A leg starts."""
        self.requests += 1
        self.work += tokens

    def release(self, tokens: float) -> None:
        """A leg ended."""
        self.requests -= 1
        self.work -= tokens


class Sender(Protocol):
    """What the proxy asks of the run."""

    def refused(self, flight: Flight, now: float, loss: Loss) -> None:
        """The client gets an error."""


@dataclass(slots=True)
class Proxy:
    """Admission and choice of one service."""

    front: Front
    seats: Sequence[Seat]
    calendar: Calendar
    sender: Sender
    rng: random.Random
    hop_s: float
    mean_osl: float
    priorities: Sequence[int]
    servers: list[Seat] = field(init=False)
    prefills: list[Seat] = field(init=False)
    _line: WaitingLine[Flight] = field(init=False)
    _choosers: dict[Role, Chooser] = field(init=False)

    def __post_init__(self) -> None:
        """Everyone is up."""
        limit = self.front.admission.queue if self.front.admission is not None else 0
        self._line = WaitingLine(limit)
        self._choosers = {role: Chooser(self.front.policy, self.rng.random) for role in Role}
        self.looked_again()

    def looked_again(self) -> None:
        """Who may be chosen now."""
        self.servers = [s for s in self.seats if s.role is not Role.PREFILL and s.up]
        self.prefills = [s for s in self.seats if s.role is Role.PREFILL and s.up]

    @property
    def waiting(self) -> int:
        """Requests that wait for admission."""
        return len(self._line)

    def admit(self, flight: Flight, now: float) -> None:
        """A client's request: to a replica with room, into the line, or back with an error."""
        flight.wanted = flight.isl + min(flight.osl, self.mean_osl)
        if not self.servers:
            self.sender.refused(flight, now, Loss.REPLICA)
            return
        seat = None if len(self._line) else self._granted(flight)
        if seat is not None:
            self._send(flight, seat, now)
            return
        if not self._line.offer(flight, self.priorities[flight.stream]):
            self.sender.refused(flight, now, Loss.REFUSED)
            return
        flight.queued = True
        self.calendar.enter(now + self.front.queue_s, self._gave_up, flight)

    def _gave_up(self, now: float, flight: Flight) -> None:
        if flight.queued and flight.server is None and flight.end_s < 0:
            self._line.leave(flight)
            flight.queued = False
            self.sender.refused(flight, now, Loss.REFUSED)

    def _granted(self, flight: Flight) -> Seat | None:
        limits, servers = self.front.admission, self.servers
        if limits is not None:
            if not self._within(flight.wanted):
                return None
            servers = [
                s for s in servers
                if has_room(s.entry, limits, requests=s.requests, tokens=s.work, ask=flight.wanted)
            ]  # fmt: skip
        return self._choosers[Role.DECODE].choose(servers, _prefix(flight))

    def _within(self, ask: float) -> bool:
        """The limits of the whole service."""
        limits = self.front.admission
        if limits is None or (limits.max_requests is None and limits.max_tokens is None):
            return True
        requests = sum(s.requests for s in self.servers)
        tokens = sum(s.work for s in self.servers)
        if limits.max_requests is not None and requests + 1 > limits.max_requests:
            return False
        return limits.max_tokens is None or not requests or tokens + ask <= limits.max_tokens

    def pump(self, now: float) -> None:
        """Let in who fits, in order."""
        while (flight := self._line.first()) is not None:
            seat = self._granted(flight)
            if seat is None:
                return
            self._line.take()
            flight.queued = False
            self._send(flight, seat, now)

    def ended(self, flight: Flight, now: float) -> None:
        """A request is over, well or not: its room is free."""
        self.handed_over(flight)
        if flight.server is not None:
            flight.server.release(flight.wanted)
            flight.server = None
        if len(self._line):
            self.pump(now)

    def handed_over(self, flight: Flight) -> None:
        """Its prefill leg is over."""
        if flight.prefill is not None:
            flight.prefill.release(flight.isl)
            flight.prefill = None

    def again(self, flight: Flight, now: float) -> bool:
        """Another try of a request whose replica ended before the first byte; False where none is left."""
        self.handed_over(flight)
        if flight.tries >= self.front.retries:
            return False
        server = flight.server
        if server is None or not server.up:
            other = self._choosers[Role.DECODE].choose(self.servers, _prefix(flight))
            if other is None:
                return False
            if server is not None:
                server.release(flight.wanted)
            other.take(flight.wanted)
            flight.server = other
        flight.tries += 1
        flight.epoch += 1
        flight.fresh()
        self._forward(flight, now)
        return True

    def _send(self, flight: Flight, seat: Seat, now: float) -> None:
        seat.take(flight.wanted)
        flight.server = seat
        self._forward(flight, now)

    def _forward(self, flight: Flight, now: float) -> None:
        """One leg or two, by the table's rule."""
        here = flight.server
        known = (
            here.engine.prefixes.tokens(flight.blocks) if here is not None and here.engine is not None else 0
        )
        path = path_for(
            uncached_tokens=max(0, flight.isl - known), skip_below=self.front.skip_prefill_below,
            block_size=self.front.block_size,
        )  # fmt: skip
        local = path is Path.LOCAL or here is None or here.role is not Role.DECODE
        prefill = None if local else self._choosers[Role.PREFILL].choose(self.prefills, _prefix(flight))
        if prefill is not None:
            prefill.take(flight.isl)
            flight.prefill = prefill
            self.calendar.enter(now + self.hop_s, self._to_prefill, (flight, flight.epoch))
        else:
            self.calendar.enter(
                now + self.hop_s, self._to_server, (flight, flight.epoch, DecodeEngine.prompt)
            )

    def hand_over(self, flight: Flight, now: float) -> None:
        """Prefill has answered: ask decode."""
        self.handed_over(flight)
        self.calendar.enter(now + self.hop_s, self._to_server, (flight, flight.epoch, DecodeEngine.offer))

    def _to_prefill(self, now: float, leg: tuple[Flight, int]) -> None:
        flight, epoch = leg
        seat = flight.prefill
        if epoch != flight.epoch or seat is None:
            return
        if not seat.up:
            if not self.again(flight, now):
                self.sender.refused(flight, now, Loss.REPLICA)
            return
        ranks = seat.ranks
        rank = ranks[0] if len(ranks) == 1 else min(ranks, key=lambda r: r.tokens)
        rank.prompt(flight, now)

    def _to_server(
        self, now: float, leg: tuple[Flight, int, Callable[[DecodeEngine, Flight, float], None]]
    ) -> None:
        flight, epoch, call = leg
        seat = flight.server
        if epoch != flight.epoch or seat is None or seat.engine is None:
            return
        if not seat.up:
            if not self.again(flight, now):
                self.sender.refused(flight, now, Loss.REPLICA)
            return
        call(seat.engine, flight, now)


def _prefix(flight: Flight) -> bytes:
    """What affinity goes by: the first block of the prompt."""
    return flight.blocks[0].to_bytes(8, "big", signed=True) if flight.blocks else b""
