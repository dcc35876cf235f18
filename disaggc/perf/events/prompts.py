"""Prompts that wait in one replica or are being computed there, in the engine's order, and what a step of them costs.

First come first served per data-parallel rank; a step takes chunks up to its token budget. Knows no batch and no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from disaggc.perf.engine_model import StepTimes
from disaggc.perf.events.flight import Flight


@dataclass(frozen=True, slots=True)
class Taken:
    """One step's prompts. complete: those it ends; beside_s: what it adds to a decode step; alone_s: without one."""

    complete: list[Flight]
    beside_s: float
    alone_s: float


class _Rank:
    __slots__ = ("queue", "tokens")

    def __init__(self) -> None:
        self.queue: deque[Flight] = deque()
        self.tokens = 0.0


class Prompts:
    """The prompts of one replica; each rank has a queue of its own."""

    def __init__(self, times: StepTimes, ranks: int) -> None:
        self._times = times
        self._ranks = [_Rank() for _ in range(ranks)]
        self._again: deque[Flight] = deque()
        self._partial: set[Flight] = set()
        self.waiting = 0

    @property
    def any(self) -> bool:
        """Whether there is anything to compute."""
        return self.waiting > 0 or bool(self._partial)

    @property
    def again_waiting(self) -> bool:
        """Whether preempted sequences wait: they go before everyone else."""
        return bool(self._again)

    def add(self, flight: Flight) -> None:
        """To the rank with the least to do."""
        rank = min(self._ranks, key=lambda r: r.tokens) if len(self._ranks) > 1 else self._ranks[0]
        rank.queue.append(flight)
        rank.tokens += flight.todo
        self.waiting += 1

    def again(self, flight: Flight) -> None:
        """A preempted sequence."""
        self._again.appendleft(flight)
        self.waiting += 1

    def clear(self) -> list[Flight]:
        """All of them, forgotten."""
        held = [*self._again, *(flight for rank in self._ranks for flight in rank.queue)]
        self._again.clear()
        self._partial.clear()
        for rank in self._ranks:
            rank.queue.clear()
            rank.tokens = 0.0
        self.waiting = 0
        return held

    def larger_than(self, tokens: float) -> list[Flight]:
        """Heads of queues that no empty replica could hold, taken out."""
        found = []
        for rank in self._ranks:
            while rank.queue and rank.queue[0].isl + rank.queue[0].osl > tokens:
                flight = rank.queue.popleft()
                rank.tokens -= flight.todo
                self.waiting -= 1
                found.append(flight)
        return found

    def take(self, room: float, admit: Callable[[Flight], bool]) -> Taken | None:
        """The chunks of one step; None where nothing may start. admit: asked once for each prompt that begins."""
        t = self._times
        complete: list[Flight] = []
        beside = alone = 0.0
        while self._again:
            rank = min(self._ranks, key=lambda r: r.tokens)
            if not admit(self._again[0]):
                break
            flight = self._again.popleft()
            self.waiting -= 1
            self._partial.add(flight)
            rank.queue.appendleft(flight)
            rank.tokens += flight.todo
        blocked = bool(self._again)
        for rank in self._ranks:
            tokens, squares = self._chunks(rank, room, complete, admit=None if blocked else admit)
            if tokens > 0:
                work = tokens * t.prefill_token_s + squares * t.prefill_square_s
                beside = max(beside, t.values.mixed_s + work)
                alone = max(alone, max(t.prefill_fixed_s + work, t.weight_read_s) / t.work.pp)
        return Taken(complete, beside, alone) if alone > 0 else None

    def _chunks(
        self, rank: _Rank, room: float, complete: list[Flight], *, admit: Callable[[Flight], bool] | None
    ) -> tuple[float, float]:
        """(tokens, squared tokens) one rank computes."""
        tokens = squares = 0.0
        queue = rank.queue
        while queue and tokens < room:
            flight = queue[0]
            if flight not in self._partial:
                before = flight.todo
                if admit is None or not admit(flight):
                    break
                rank.tokens -= before - flight.todo  # what a cache already had
                self._partial.add(flight)
                self.waiting -= 1
            chunk = min(flight.todo, room - tokens)
            before = flight.done
            flight.done += chunk
            flight.todo -= chunk
            squares += flight.done * flight.done - before * before
            tokens += chunk
            rank.tokens -= chunk
            if flight.todo > 0:
                break
            queue.popleft()
            self._partial.discard(flight)
            complete.append(flight)
        return tokens, squares
