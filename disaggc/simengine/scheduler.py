"""Continuous batching of the double: which sequences compute what in each step, and how long the step takes.

One timer for all running sequences. Knows no HTTP and no peers: fetching and keeping KV are the exchange's business.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from disaggc.simengine.batch import Chunks, chunks, duration_s, plain_word
from disaggc.simengine.blocks import Content
from disaggc.simengine.metrics import Counters
from disaggc.simengine.options import Options
from disaggc.simengine.places import Places
from disaggc.simengine.records import record_end, record_first
from disaggc.simengine.sequence import Exchange, Sequence, State
from disaggc.simengine.tokens import digests

_BURST = 32
"""Steps computed in one turn of the event loop when it runs late or the time scale makes steps shorter than a turn."""
_LATE_S = 0.5


class Scheduler:
    """All sequences of one engine."""

    def __init__(self, options: Options, counters: Counters, loop: asyncio.AbstractEventLoop) -> None:
        self.options, self.counters, self._loop = options, counters, loop
        self.places = Places(options, counters)
        self.pool = self.places.pool
        self.exchange: Exchange | None = None
        self.waiting: deque[Sequence] = deque()
        self.ready: deque[Sequence] = deque()
        self.fetching: set[Sequence] = set()
        self.prefilling: list[Sequence] = []
        self.decoding: list[Sequence] = []
        self.slow, self.stuck = 1.0, False
        self.late_s = self.lost_s = 0.0
        self._limit = options.max_num_seqs * options.dp
        self._chunks: Chunks = []
        self._batch: list[Sequence] = []
        self._due = self._before = 0.0
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None

    # --- what others ask ---

    def submit(self, sequence: Sequence) -> None:
        """A new sequence; its prompt fits the model."""
        sequence.digests = digests(sequence.ids, self.options.block_size)
        self.waiting.append(sequence)
        if sequence.wish.fetches:
            self._admit(self.options.max_num_batched_tokens)
        self._kick()

    def abort(self, sequence: Sequence, reason: str = "abort") -> None:
        """End a sequence now; its sink gets the reason."""
        if sequence.state is State.DONE:
            return
        for queue in (self.waiting, self.ready, self.prefilling, self.decoding):
            if sequence in queue:
                queue.remove(sequence)
        if sequence in self.fetching or (sequence.wish.fetches and sequence.state is State.WAITING):
            self.fetching.discard(sequence)
            if self.exchange is not None:
                self.exchange.cancel(sequence)
        self._end(sequence, reason, self._loop.time())

    def arrived(self, sequence: Sequence, contents: list[Content] | None) -> None:
        """The KV of a fetched sequence, one content per block that was not cached; None = it will not come."""
        if sequence.state is not State.FETCHING:
            return
        self.fetching.discard(sequence)
        if contents is None:
            connector = self.options.connector
            if connector is None or connector.fail:
                self._end(sequence, "error", self._loop.time())
                return
            sequence.state = State.WAITING
            sequence.computed = min(sequence.cached, sequence.prompt - 1)
        else:
            sequence.external = sequence.prompt - sequence.cached
            sequence.computed = sequence.prompt - 1
            self.places.write(sequence, contents)
            sequence.state = State.READY
        self.ready.append(sequence)
        self._kick()

    def everything(self) -> Iterable[Sequence]:
        """All sequences that are not done."""
        return [*self.waiting, *self.ready, *self.fetching, *self.prefilling, *self.decoding]

    @property
    def running(self) -> int:
        """Sequences with a place in the steps."""
        return len(self.prefilling) + len(self.decoding)

    # --- admission ---

    def _admit(self, budget: int) -> None:
        while self.ready and self.running < self._limit:
            sequence = self.ready.popleft()
            sequence.state, sequence.scheduled = State.RUNNING, self._loop.time()
            self.prefilling.append(sequence)
        while self.waiting and self.running < self._limit:
            sequence = self.waiting[0]
            if not sequence.wish.fetches and budget <= 0:
                break
            if not self.places.allot(sequence):
                break
            self.waiting.popleft()
            if sequence.wish.fetches and self.exchange is not None and not sequence.generated:
                sequence.state = State.FETCHING
                self.fetching.add(sequence)
                self.exchange.fetch(sequence)
            else:
                sequence.state = State.RUNNING
                sequence.scheduled = sequence.scheduled or self._loop.time()
                self.prefilling.append(sequence)
                budget -= sequence.target - sequence.computed

    # --- steps ---

    def _kick(self) -> None:
        if self._timer is None and not self.stuck:
            self._due = self._before = self._loop.time()
            self._timer = self._loop.call_soon(self._turn)

    def resume(self) -> None:
        """Go on after having been stuck."""
        self.stuck = False
        self._kick()

    def pace(self, factor: float) -> None:
        """Steps take `factor` times as long as planned; so does what is left of the one under way."""
        now = self._loop.time()
        self._due = now + max(0.0, self._due - now) * factor / self.slow
        self.slow = factor
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._due, self._turn)

    def _turn(self) -> None:
        """Compute every step that is due, then sleep until the next is."""
        self._timer = None
        if self.stuck:
            return
        now = self._loop.time()
        for _ in range(_BURST):
            if self._chunks or self._batch:
                self._apply(self._due)
            duration = self._plan()
            if duration is None:
                return
            self._due += duration
            if self._due > now + 0.0005:
                self._timer = self._loop.call_at(self._due, self._turn)
                return
        self.late_s = max(self.late_s, now - self._due)
        if now - self._due > _LATE_S:
            self.lost_s += now - self._due
            self._due = now
        self._timer = self._loop.call_soon(self._turn)

    def _plan(self) -> float | None:
        """The next step's work and its duration; None when there is nothing to do."""
        budget = self.options.max_num_batched_tokens * self.options.timing.ranks - len(self.decoding)
        self._admit(budget - sum(s.target - s.computed for s in self.prefilling))
        self._batch = self.decoding.copy()
        self._chunks = chunks(self.prefilling, budget)
        if not self._batch and not self._chunks:
            return None
        tokens = len(self._batch) + sum(part for _, part in self._chunks)
        self.counters.hist["iteration_tokens_total"].observe(tokens)
        return duration_s(self._batch, self._chunks, self.options.timing) * self.slow / self.options.scale

    def _apply(self, at: float) -> None:
        """The end of a step."""
        batch = 0
        for sequence in self._batch:
            if sequence.state is State.RUNNING:
                batch += 1
                if not plain_word(sequence):
                    self._emit(sequence, at)
        if batch:
            self.counters.hist["inter_token_latency_seconds"].observe(at - self._before, batch)
            self.counters.value["generation_tokens"] += batch
        for sequence, part in self._chunks:
            if sequence.state is State.RUNNING:
                sequence.computed += part
                if sequence.computed >= sequence.target:
                    self._computed(sequence, at)
        self._before = at
        self._batch, self._chunks = [], []

    def _computed(self, sequence: Sequence, at: float) -> None:
        """The prompt is computed (again): the next word comes with it."""
        self.prefilling.remove(sequence)
        if not sequence.preemptions:
            self.places.begin(sequence)
            record_first(self.counters, sequence, at)
        self.counters.value["generation_tokens"] += 1
        self.decoding.append(sequence)
        self._emit(sequence, at)

    def _emit(self, sequence: Sequence, at: float) -> None:
        """One more word."""
        wish, out = sequence.wish, sequence.out
        out.append(sequence.continuation.next())
        sequence.generated += 1
        generated = sequence.generated
        ended = generated == wish.ends_after or (wish.stopped is not None and wish.stopped(sequence))
        if ended or generated >= wish.max_tokens:
            self.decoding.remove(sequence)
            self._end(sequence, "stop" if ended else "length", at)
        elif sequence.room > 0 or self._grow(sequence):
            sequence.room -= 1
            if len(out) >= wish.interval or generated == 1:
                sequence.sink.push(sequence, out)
                sequence.out = []

    def _grow(self, sequence: Sequence) -> bool:
        """One more block; the youngest sequence gives way when there is none. False when it was this one."""
        while not self.pool.free:
            youngest = max((*self.decoding, *self.prefilling), key=lambda s: s.arrived)
            self._preempt(youngest)
            if youngest is sequence:
                return False
        self.places.grow(sequence)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        """Give the blocks away and compute everything again later."""
        (self.decoding if sequence in self.decoding else self.prefilling).remove(sequence)
        self.places.leave(sequence)
        sequence.state = State.WAITING
        sequence.target = sequence.length
        sequence.preemptions += 1
        self.counters.value["num_preemptions"] += 1
        self.waiting.appendleft(sequence)

    def _end(self, sequence: Sequence, reason: str, at: float) -> None:
        sequence.state = State.DONE
        sequence.last_at = at
        kept = self.exchange is not None and sequence.wish.keeps and self.exchange.keep(sequence, reason)
        if not kept:
            self.places.leave(sequence)
        record_end(self.counters, sequence, reason)
        sequence.sink.finish(sequence, reason)
