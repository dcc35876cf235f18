"""A decode or colocated replica: admission by sequences and KV memory, fetches, steps that compute prompts, preemption.

Between events its batch advances by itself. Steps that compute prompts are events of their own. Knows no proxy, no
network and no client: `Owner` does.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

from disaggc.perf.engine_model import StepTimes
from disaggc.perf.events.batch import Batch
from disaggc.perf.events.calendar import Calendar
from disaggc.perf.events.flight import Flight, Loss
from disaggc.perf.events.prefix_cache import PrefixCache
from disaggc.perf.events.prompts import Prompts
from disaggc.perf.events.sizes import Sizes
from disaggc.perf.events.tally import Histogram


class Owner(Protocol):
    """What an engine tells the run. A request reaches an engine by the calendar only, never from within these calls."""

    def finished(self, flight: Flight, now: float) -> None:
        """The last token went out."""

    def lost(self, flight: Flight, now: float, loss: Loss) -> None:
        """The engine gives the request up."""

    def fetch(self, flight: Flight, engine: DecodeEngine, now: float) -> None:
        """Room is reserved: bring the KV, then call `arrived`."""


class DecodeEngine:
    """One replica."""

    def __init__(
        self, times: StepTimes, sizes: Sizes, calendar: Calendar, *, owner: Owner, itl: list[Histogram]
    ) -> None:
        self.sizes, self.owner, self._calendar = sizes, owner, calendar
        self.batch = Batch(times, sizes.kappa, sizes.per_step, itl=itl)
        self.prompts = Prompts(times, sizes.ranks)
        self.prefixes = PrefixCache()
        self.fetching: dict[Flight, None] = {}
        self.preemptions = 0
        self._fetches: deque[Flight] = deque()
        self._joining: list[Flight] = []
        self._step: list[Flight] | None = None
        self._reserved = 0.0
        self._seated = 0
        self._version = 0

    # --- what comes in ---------------------------------------------------------------------------------------------

    def prompt(self, flight: Flight, now: float) -> None:
        """A request whose prompt is computed here."""
        self.prompts.add(flight)
        self._changed(now)

    def offer(self, flight: Flight, now: float) -> None:
        """A request whose KV waits at its prefill engine."""
        self._fetches.append(flight)
        self._changed(now)

    def arrived(self, flight: Flight, now: float) -> None:
        """The KV is here: it runs from the next step on."""
        self.fetching.pop(flight, None)
        self.settle(now)
        if self._step is not None:
            self._joining.append(flight)
            return
        self._join_fetched(flight, now)
        self._next(now)

    def abandoned(self, flight: Flight) -> None:
        """Nothing will arrive for this one any more: the room kept for it is free."""
        self.fetching.pop(flight, None)
        self._reserved -= flight.isl

    def clear(self, now: float) -> list[Flight]:
        """The replica ends; what it held."""
        self.settle(now)
        held = [*self.batch.clear(), *(self._step or ()), *self._joining, *self.fetching, *self._fetches]
        held += self.prompts.clear()
        self._fetches.clear()
        self.prefixes.clear()
        self.fetching.clear()
        self._joining.clear()
        self._step = None
        self._reserved, self._seated = 0.0, 0
        self._version += 1
        return held

    @property
    def waiting(self) -> int:
        """Requests here that neither run nor move."""
        return len(self._fetches) + self.prompts.waiting

    @property
    def kv_used(self) -> float:
        """Tokens of KV in use or reserved."""
        return self.batch.context + self._reserved

    def settle(self, now: float) -> None:
        """Bring the batch up to date."""
        self.batch.pass_time(now, stepping=self._step is not None)

    # --- events ----------------------------------------------------------------------------------------------------

    def _changed(self, now: float) -> None:
        """Something came in: a step that runs takes it up at its end."""
        if self._step is None:
            self.settle(now)
            self._next(now)

    def _wake(self, now: float, version: int) -> None:
        if version != self._version:
            return
        self.settle(now)
        self.batch.snap()
        self._finish(now)
        self._next(now)

    def _stepped(self, now: float, version: int) -> None:
        """A step with prompts ended: a token for every running sequence, the first one for each finished prompt."""
        if version != self._version or self._step is None:
            return
        self.settle(now)
        complete, self._step = self._step, None
        self.batch.stepped()
        self._finish(now)
        for flight in complete:
            self._computed(flight, now)
        for flight in self._joining:
            self._join_fetched(flight, now)
        self._joining.clear()
        self._next(now)

    def _finish(self, now: float) -> None:
        for flight in self.batch.finished():
            flight.first_s = min(flight.first_s, now)  # told for the batch it joined; others left it since
            self.owner.finished(flight, now)

    def _join_fetched(self, flight: Flight, now: float) -> None:
        """Its first token is that of the first step it takes part in."""
        self._kept(flight)
        self._reserved -= flight.isl
        start = self.batch.join(flight, flight.left / self.sizes.per_step)
        if not flight.streaming:
            flight.first_s = now + self.batch.until(start + 1 - self.batch.steps)

    def _computed(self, flight: Flight, now: float) -> None:
        """A prompt is complete; its last chunk gave one token."""
        self._kept(flight)
        self._reserved -= flight.done
        self._seated -= 1
        if flight.paused_s >= 0:
            self.batch.itl[flight.stream].add(now - flight.paused_s, 1)
            flight.paused_s = -1.0
        if not flight.streaming:
            flight.first_s = now
        flight.left -= 1
        if flight.left <= 0:
            self.owner.finished(flight, now)
        else:
            self.batch.join(flight, flight.left / self.sizes.per_step)

    def _kept(self, flight: Flight) -> None:
        """Its prompt stays in the prefix cache as long as nobody needs the room."""
        if flight.blocks:
            self.prefixes.keep(flight.blocks, self.sizes.kv_tokens - self.kv_used + flight.isl)

    # --- what to do next -------------------------------------------------------------------------------------------

    def _next(self, now: float) -> None:
        """Admit what fits and enter the next event: a step with prompts, an end, or memory running out."""
        self._version += 1
        batch, capacity = self.batch, self.sizes.kv_tokens
        if not (self._seated or self.fetching or self._joining):
            self._reserved = 0.0  # rounding must not keep out what fits exactly
        while batch.size > 1 and self.kv_used + batch.size > capacity:
            self.prompts.again(batch.preempted())
            self.preemptions += 1
        self._fetch(now)
        if self.prompts.any:
            left = batch.to_boundary() if batch.size else 0.0
            if left:
                self._calendar.enter(now + batch.until(left), self._wake, self._version)
                return
            if self._start_step(now):
                return
        if not batch.size:
            return
        steps = batch.to_end()
        if batch.size > 1:
            room = (capacity - self.kv_used) / batch.size - 1
            steps = min(steps, max(room / self.sizes.per_step, 0.0) + 2 * batch.snap_steps)
        self._calendar.enter(now + batch.until(steps), self._wake, self._version)

    def _room_for(self, tokens: float) -> bool:
        """Whether a further sequence with this much KV may start; each running one needs its next token too."""
        taken = self.batch.size + len(self.fetching) + len(self._joining) + self._seated
        return taken < self.sizes.seqs and self.kv_used + tokens + self.batch.size + 1 <= self.sizes.kv_tokens

    def _fetch(self, now: float) -> None:
        """Start transfers, in order, while there is room; preempted sequences go first."""
        while self._fetches and not self.prompts.again_waiting:
            flight = self._fetches[0]
            if flight.isl + flight.osl > self.sizes.kv_tokens:
                self._fetches.popleft()
                self.owner.lost(flight, now, Loss.TOO_LONG)
                continue
            if not self._room_for(flight.isl):
                return
            self._fetches.popleft()
            self._reserved += flight.isl
            self.fetching[flight] = None
            self.owner.fetch(flight, self, now)

    def _start_step(self, now: float) -> bool:
        """Start one step that computes prompts; False where nothing may start."""
        for flight in self.prompts.larger_than(self.sizes.kv_tokens):
            self.owner.lost(flight, now, Loss.TOO_LONG)
        batch = self.batch
        room = self.sizes.budget - math.ceil(batch.size / self.sizes.ranks)
        taken = self.prompts.take(max(room, 1.0), self._admit)
        if taken is None:
            return False
        duration = batch.step_s + taken.beside_s if batch.size else taken.alone_s
        self._step = taken.complete
        batch.one_step(duration)
        self._calendar.enter(now + duration, self._stepped, self._version)
        return True

    def _admit(self, flight: Flight) -> bool:
        tokens = flight.todo + flight.done
        if not self._room_for(tokens):
            return False
        self._reserved += tokens
        self._seated += 1
        if flight.blocks and not flight.streaming:
            flight.found(self.prefixes.use(flight.blocks, flight.isl))
        return True
