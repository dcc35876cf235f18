"""A run of so many requests, from the first to the last: what a benchmark measures beside the steady state.

All requests of a class are alike and move in groups. A group waits for its turn in the prompt queue, then lives for its
tokens on the clock of the decode steps, which runs as fast as the batch of the moment lets it. So the rush at the
start, the ramp and the drain are seen; chance is not (`run_latency` adds it). Knows no ranges.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass

from disaggc.perf.demand import ClassDemand
from disaggc.perf.pace import Pace
from disaggc.perf.stations import Stations
from disaggc.perf.steady import Steady

_GROUPS = 240
"""Groups that a run is followed in, at most; a run of fewer requests is followed one by one."""
_LOOP = 12.0
"""Groups that make one class's requests in flight, at least."""
_WAVES = 30.0
"""Waves of requests in flight after which a run has settled: the rest of it is the steady state."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What the requests of one class saw. waits: from sending to the first token, beyond that of a request alone."""

    rate: float
    waits: tuple[float, ...]
    token_s: float
    lives: tuple[float, ...]
    settled: float
    """Share of the requests that came after the run had settled and that are not among the waits."""


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. mixed: share of the output tokens that shared their step with a prompt."""

    duration_s: float
    classes: tuple[Passed, ...]
    mixed: float


class _Stream:
    """Requests of one class: when they may start, and what came of them."""

    def __init__(self, c: ClassDemand, count: float, alone_s: float) -> None:
        self.c, self.count, self.alone_s = c, count, alone_s
        size = max(1.0, count / _GROUPS)
        if c.cap < math.inf:
            size = c.cap / max(1, round(c.cap / min(size, max(1.0, c.cap / _LOOP))))
        self.size = size
        self.groups = max(1, round(count / size))
        self.limit = math.inf if c.cap == math.inf else max(1, round(c.cap / size))
        self.tokens = max(1.0, c.osl.mean - 1) * c.steps_per_token
        self.sent, self.flying = 0, 0
        self.waits: list[float] = []
        self.lives: list[float] = []
        self.token_times: list[float] = []

    def next_start(self, now: float) -> float:
        """When the next group may be sent; never while the cap is reached."""
        if self.sent >= self.groups or self.flying >= self.limit:
            return math.inf
        due = self.sent * self.size / self.c.rate if self.c.rate < math.inf else 0.0
        return max(now, due)


@dataclass(slots=True)
class _Group:
    stream: _Stream
    sent_s: float
    started_s: float = 0.0
    own_s: float = 0.0
    """What its other members take: they came one after the other, and are no queue."""


class FiniteRun:
    """The fluid course of one run through the stations of a layout."""

    def __init__(self, stations: Stations, steady: Steady, requests: float) -> None:
        self._s, self._steady = stations, steady
        flow = sum(steady.rates)
        shares = [x / flow if flow > 0 else 1 / len(steady.rates) for x in steady.rates]
        self._followed = min(requests, max(_GROUPS, _WAVES * self._in_flight()))
        self._rest = requests - self._followed
        alone = [stations.alone_s(c, c.isl.p50, self._steps()) for c in stations.classes]
        self._streams = [
            _Stream(c, self._followed * share, a)
            for c, share, a in zip(stations.classes, shares, alone, strict=True)
        ]
        self._pace = Pace(stations)
        self._limit = self._pace.room
        self._prompts: deque[_Group] = deque()
        self._held: deque[_Group] = deque()
        self._ready: list[tuple[float, int, _Group]] = []
        self._decoding: list[tuple[float, int, _Group]] = []
        self._now = self._clock = self._running = self._inside = 0.0
        self._front = self._behind = 0.0
        self._order = 0
        self._tokens = self._mixed = 0.0

    def _in_flight(self) -> float:
        caps = sum(c.cap for c in self._s.classes)
        life = self._steady.wait_s + self._steady.step_s * max(
            c.osl.mean * c.steps_per_token for c in self._s.classes
        )
        return min(caps, sum(self._steady.rates) * life + 1)

    def _steps(self) -> list[float]:
        return [self._s.decode_s(i, b) for i, b in enumerate(self._steady.batches)]

    def run(self) -> Run:
        """Follows every group to its last token."""
        left = sum(s.groups for s in self._streams)
        while left:
            self._send()
            step_s = self._pace.step_s(self._running)
            turn_s, chunks = 1.0, 0.0
            if self._prompts:
                class_ = self._streams.index(self._prompts[0].stream)
                turn_s, chunks = self._pace.turn(class_, self._behind + self._front, step_s)
            clock = chunks / turn_s if chunks else 1 / step_s
            waits = (
                min(s.next_start(self._now) for s in self._streams) - self._now,
                self._front * turn_s if self._prompts else math.inf,
                self._ready[0][0] - self._now if self._ready else math.inf,
                (self._decoding[0][0] - self._clock) / clock if self._decoding else math.inf,
            )
            passed = max(0.0, min(waits))
            self._advance(passed, clock, 1 / turn_s, mixed=bool(chunks))
            which = waits.index(min(waits))
            if which == 1:
                self._computed(turn_s)
            elif which == 2:
                self._hold(heapq.heappop(self._ready)[2])
            elif which == 3:
                self._ended(heapq.heappop(self._decoding)[2])
                left -= 1
        return self._result()

    def _advance(self, passed: float, clock: float, speed: float, *, mixed: bool) -> None:
        self._now += passed
        self._clock += passed * clock
        self._tokens += passed * clock * self._running
        if mixed:
            self._mixed += passed * clock * self._running
        if self._prompts:
            self._front = max(0.0, self._front - passed * speed)

    def _send(self) -> None:
        """Every group that may start now."""
        for stream in self._streams:
            while stream.next_start(self._now) <= self._now:
                stream.sent += 1
                stream.flying += 1
                group = _Group(stream, self._now)
                if self._s.colocated and self._inside + stream.size > self._limit and self._inside > 0:
                    self._held.append(group)
                else:
                    self._queue(group)

    def _queue(self, group: _Group) -> None:
        self._inside += group.stream.size
        if self._prompts:
            self._behind += group.stream.size
        else:
            self._front = group.stream.size
        self._prompts.append(group)

    def _computed(self, turn_s: float) -> None:
        group = self._prompts.popleft()
        self._front = self._prompts[0].stream.size if self._prompts else 0.0
        self._behind = max(0.0, self._behind - self._front)
        group.own_s = (group.stream.size - 1) * turn_s
        ready = max(self._now, group.sent_s + group.stream.alone_s)
        self._order += 1
        heapq.heappush(self._ready, (ready, self._order, group))

    def _hold(self, group: _Group) -> None:
        """A prompt that is done enters decode, or waits for room in it."""
        full = self._running + group.stream.size > self._limit and self._running > 0
        if not self._s.colocated and full:
            self._held.append(group)
        else:
            self._start(group)

    def _start(self, group: _Group) -> None:
        group.started_s = self._now
        waited = self._now - group.sent_s - group.stream.alone_s - group.own_s
        group.stream.waits.append(max(0.0, waited))
        self._running += group.stream.size
        self._order += 1
        heapq.heappush(self._decoding, (self._clock + group.stream.tokens, self._order, group))

    def _ended(self, group: _Group) -> None:
        stream = group.stream
        stream.flying -= 1
        self._running = max(0.0, self._running - stream.size)
        self._inside -= stream.size
        stream.token_times.append((self._now - group.started_s) / max(1.0, stream.c.osl.mean - 1))
        stream.lives.append(self._now - group.sent_s)
        while self._held:
            used = self._inside if self._s.colocated else self._running
            if used + self._held[0].stream.size > self._limit and used > 0:
                break
            waiting = self._held.popleft()
            if self._s.colocated:
                self._queue(waiting)
            else:
                self._start(waiting)

    def _result(self) -> Run:
        flow = sum(self._steady.rates)
        duration = self._now + (self._rest / flow if flow > 0 else 0.0)
        part = self._rest / (self._rest + self._followed)
        return Run(
            duration,
            tuple(
                Passed(
                    rate=s.count / (1 - part) / duration,
                    waits=tuple(sorted(s.waits)),
                    token_s=sorted(s.token_times)[len(s.token_times) // 2],
                    lives=tuple(sorted(s.lives)),
                    settled=part,
                )
                for s in self._streams
            ),
            self._mixed / self._tokens if self._tokens > 0 else 0.0,
        )
