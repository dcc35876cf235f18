"""One data-parallel rank of a prefill replica: prompts in steps of a token budget, KV kept until decode has it.

Full steps of one long prompt are one event: nothing else can start in them. Knows no decode and no network.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

from disaggc.perf.engine_model import StepTimes
from disaggc.perf.events.calendar import Calendar
from disaggc.perf.events.flight import Flight, Loss
from disaggc.perf.events.prefix_cache import PrefixCache


class PrefillOwner(Protocol):
    """What a prefill engine tells the run."""

    def prefilled(self, flight: Flight, now: float) -> None:
        """The prompt is computed; its KV is kept here."""

    def lost(self, flight: Flight, now: float, loss: Loss) -> None:
        """The engine gives the request up."""


class PrefillEngine:
    """First come first served; its KV holds running prompts and leased ones."""

    def __init__(
        self, times: StepTimes, calendar: Calendar, owner: PrefillOwner, *, budget: float, kv_tokens: float,
        lease_s: float,
    ) -> None:  # fmt: skip
        self._times, self._calendar, self._owner = times, calendar, owner
        self._budget, self._capacity, self._lease_s = budget, kv_tokens, lease_s
        self._queue: deque[Flight] = deque()
        self._partial: Flight | None = None
        self._leases: dict[Flight, float] = {}
        self._moving: set[Flight] = set()
        self._held = 0.0
        self._busy_until = 0.0
        self._working = False
        self._unsaid: dict[Flight, None] = {}
        self._version = 0
        self._prefixes = PrefixCache()
        self.link_free_s = 0.0
        self.tokens = 0.0
        self.busy_s = 0.0

    @property
    def waiting(self) -> int:
        """Prompts that wait."""
        return len(self._queue)

    @property
    def kv_used(self) -> float:
        """Tokens of KV in use: prompts being computed and finished ones that decode has not fetched."""
        return self._held

    @property
    def working(self) -> bool:
        """Whether a step runs."""
        return self._working

    def prompt(self, flight: Flight, now: float) -> None:
        """One more prompt."""
        flight.source = self
        self._queue.append(flight)
        self.tokens += flight.todo
        if not self._working:
            self._step(now)

    def begin(self, flight: Flight, now: float) -> bool:
        """Decode begins to fetch, which ends the lease; False where the KV is gone."""
        self._expire(now)
        if self._leases.pop(flight, None) is None:
            return False
        self._moving.add(flight)
        return True

    def release(self, flight: Flight, now: float) -> bool:
        """Decode has the KV, or nobody wants it any more; False where it was gone before."""
        if self._leases.pop(flight, None) is None and flight not in self._moving:
            return False
        self._moving.discard(flight)
        self._held -= flight.isl
        if not self._working and self._queue:
            self._step(now)
        return True

    def clear(self) -> list[Flight]:
        """The replica ends; prompts that were here, without those that wait for decode."""
        held = [*self._queue, *([] if self._partial is None else [self._partial]), *self._unsaid]
        self._queue.clear()
        self._prefixes.clear()
        self._unsaid.clear()
        self._leases.clear()
        self._moving.clear()
        self._partial, self._held, self.tokens = None, 0.0, 0.0
        self._working = False
        self._version += 1
        return held

    def _expire(self, now: float) -> None:
        """Leases that ran out, oldest first; decode finds out when it comes for the KV."""
        while self._leases:
            flight, end = next(iter(self._leases.items()))
            if end > now:
                return
            del self._leases[flight]
            self._held -= flight.isl

    def _look_again(self, now: float, version: int) -> None:
        if version == self._version and not self._working:
            self._step(now)

    def _start(self, now: float) -> bool:
        """Whether the first waiting prompt may begin, now that there is room or nothing to wait for."""
        while self._queue:
            flight = self._queue[0]
            if flight.isl > self._capacity:
                self._queue.popleft()
                self.tokens -= flight.todo
                self._owner.lost(flight, now, Loss.TOO_LONG)
                continue
            if self._held + flight.isl <= self._capacity:
                return True
            self._expire(now)
            return self._held + flight.isl <= self._capacity
        return False

    def _step(self, now: float) -> None:
        """One step, or all the full steps of a long prompt."""
        t, budget = self._times, self._budget
        self._version += 1
        left, work, steps = budget, 0.0, 1
        complete: list[Flight] = []
        while left > 0:
            flight = self._partial
            if flight is None:
                if not self._start(now):
                    break
                flight = self._queue.popleft()
                self._held += flight.isl
                if flight.blocks:
                    self.tokens -= flight.found(self._prefixes.use(flight.blocks, flight.isl))
            if flight.todo > budget and left == budget:
                # full steps of this prompt alone; its rest is shared with whoever has come by then
                steps = math.ceil(flight.todo / budget) - 1
                left = steps * budget
            chunk = min(flight.todo, left)
            after = flight.done + chunk
            work += (
                chunk * t.prefill_token_s + (after * after - flight.done * flight.done) * t.prefill_square_s
            )
            flight.done, flight.todo = after, flight.todo - chunk
            left -= chunk
            self.tokens -= chunk
            self._partial = flight if flight.todo > 0 else None
            if self._partial is None:
                complete.append(flight)
                self._unsaid[flight] = None
                if flight.blocks:
                    self._prefixes.keep(flight.blocks, self._capacity - self._held + flight.isl)
        self._working = bool(complete) or self._partial is not None
        if not self._working:
            if self._queue and self._leases:
                self._calendar.enter(next(iter(self._leases.values())), self._look_again, self._version)
            return
        whole = max(steps * t.prefill_fixed_s + work, steps * t.weight_read_s)
        stage = whole / t.work.pp
        self.busy_s += stage
        for flight in complete:
            flight.last_step_s = whole / steps
        self._calendar.enter(now + stage, self._stepped, (self._version, complete, (whole - stage) / steps))

    def _stepped(self, now: float, step: tuple[int, list[Flight], float]) -> None:
        version, complete, behind = step
        if version != self._version:
            return
        self._working = False
        for flight in complete:
            self._leases[flight] = now + self._lease_s
            if behind > 0:
                self._calendar.enter(now + behind, self._through, (flight, flight.epoch))
            else:
                self._through(now, (flight, flight.epoch))
        if not self._working:
            self._step(now)

    def _through(self, now: float, done: tuple[Flight, int]) -> None:
        """The last pipeline stage is done; nothing to say where the replica ended meanwhile."""
        flight, epoch = done
        if epoch == flight.epoch and flight in self._unsaid:
            del self._unsaid[flight]
            self._owner.prefilled(flight, now)
