"""One data-parallel rank of a prefill replica: prompts in steps of a token budget, KV kept until decode has it.

When a step starts and ends its group says. Full steps of one long prompt are one event: nothing else can start in them.
Knows no decode and no network.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from disaggc.perf.engine_model import StepTimes
from disaggc.perf.events.calendar import Calendar
from disaggc.perf.events.flight import Flight, Loss
from disaggc.perf.events.lockstep import Lockstep
from disaggc.perf.events.prefix_cache import PrefixCache


class PrefillOwner(Protocol):
    """What a prefill engine tells the run."""

    def prefilled(self, flight: Flight, now: float) -> None:
        """The prompt is computed; its KV is kept here."""

    def lost(self, flight: Flight, now: float, loss: Loss) -> None:
        """The engine gives the request up."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one rank computes in one step, or in several full ones. whole_s: through all pipeline stages.

    tokens: they count as the rank's work until the step is over.
    """

    rank: PrefillEngine
    version: int
    complete: list[Flight]
    tokens: float
    whole_s: float
    steps: int

    @property
    def stage_s(self) -> float:
        """Until the next one may start: the first pipeline stage is free again."""
        return self.whole_s / self.rank.stages


class PrefillEngine:
    """First come first served; its KV holds running prompts and leased ones."""

    def __init__(
        self, times: StepTimes, calendar: Calendar, owner: PrefillOwner, *, budget: float, kv_tokens: float,
        lease_s: float, group: Lockstep | None = None,
    ) -> None:  # fmt: skip
        self._group = group or Lockstep(calendar)
        self._group.ranks.append(self)
        self._times, self._calendar, self._owner = times, calendar, owner
        self._budget, self._capacity, self._lease_s = budget, kv_tokens, lease_s
        self._queue: deque[Flight] = deque()
        self._partial: Flight | None = None
        self._leases: dict[Flight, float] = {}
        self._moving: set[Flight] = set()
        self._held = 0.0
        self.working = False
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
    def stages(self) -> int:
        """Pipeline stages that work on different steps at once."""
        return self._times.work.pp

    def prompt(self, flight: Flight, now: float) -> None:
        """One more prompt."""
        flight.source = self
        self._queue.append(flight)
        self.tokens += flight.todo
        self._group.go_on(now)

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
        if self._queue:
            self._group.go_on(now)
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
        self.working = False
        self._version += 1
        self._group.stopped()
        return held

    def _expire(self, now: float) -> None:
        """Leases that ran out, oldest first; decode finds out when it comes for the KV."""
        while self._leases:
            flight, end = next(iter(self._leases.items()))
            if end > now:
                return
            del self._leases[flight]
            self._held -= flight.isl

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

    def take(self, now: float, *, alone: bool) -> Step | None:
        """The work of its next step, or of all the full steps of a long prompt; None where nothing may start.

        alone: no other rank's step ends with it.
        """
        t, budget = self._times, self._budget
        left, work, tokens, steps = budget, 0.0, 0.0, 1
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
            if alone and flight.todo > budget and left == budget:
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
            tokens += chunk
            self._partial = flight if flight.todo > 0 else None
            if self._partial is None:
                complete.append(flight)
                self._unsaid[flight] = None
                if flight.blocks:
                    self._prefixes.keep(flight.blocks, self._capacity - self._held + flight.isl)
        self.working = bool(complete) or self._partial is not None
        if not self.working:
            return None
        whole = max(steps * t.prefill_fixed_s + work, steps * t.weight_read_s)
        for flight in complete:
            flight.last_step_s = whole / steps
        return Step(self, self._version, complete, tokens, whole, steps)

    @property
    def lease_ends_s(self) -> float | None:
        """When the first lease ends that prompts may wait for; None where none does."""
        return next(iter(self._leases.values())) if self._queue and self._leases else None

    def stepped(self, step: Step, now: float, *, lasted_s: float) -> None:
        """Its step is over."""
        if step.version != self._version:
            return
        self.working = False
        self.busy_s += lasted_s
        self.tokens -= step.tokens
        behind = (step.whole_s - step.whole_s / self._times.work.pp) / step.steps
        for flight in step.complete:
            self._leases[flight] = now + self._lease_s
            if behind > 0:
                self._calendar.enter(now + behind, self._through, (flight, flight.epoch))
            else:
                self._through(now, (flight, flight.epoch))

    def _through(self, now: float, done: tuple[Flight, int]) -> None:
        """The last pipeline stage is done; nothing to say where the replica ended meanwhile."""
        flight, epoch = done
        if epoch == flight.epoch and flight in self._unsaid:
            del self._unsaid[flight]
            self._owner.prefilled(flight, now)
