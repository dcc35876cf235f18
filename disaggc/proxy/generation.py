"""A generation request from admission on: the choice of replicas, tries until the first byte, delivery.

KV parameters are single use: whatever happens to the decode leg, the next try starts with a new prefill, and what an
earlier one left pinned is released. What a try sends stands in attempt, what may follow a failure in retrying.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from disaggc.proxy.arrival import Arrival
from disaggc.proxy.attempt import Attempt
from disaggc.proxy.board import PerClass, Total
from disaggc.proxy.call import Call
from disaggc.proxy.delivery import count_tokens, deliver_whole, open_stream
from disaggc.proxy.failures import LegError, RefusedError
from disaggc.proxy.pair_choice import choose_pair
from disaggc.proxy.precheck import counted
from disaggc.proxy.requests import Request
from disaggc.proxy.retrying import next_try, without_prefill
from disaggc.proxy.service import Service
from disaggc.proxy.waiting import Pause, Wait

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.front import Front
    from disaggc.proxy.stream import Stream
    from disaggc.proxy.upstream import Connection


class Generation(Arrival):
    """One chat, completion, response or message."""

    __slots__ = ("attempt", "pause", "stream", "tried", "tries", "waited")

    def __init__(self, service: Service, front: Front, request: Request) -> None:
        Arrival.__init__(self, service, front, request)  # super() costs 0.4 us, here and below
        self.attempt: Attempt | None = None
        self.stream: Stream | None = None
        self.tried: frozenset[str] = frozenset()
        self.tries = 0
        self.pause: Wait | Pause | None = None
        """While it waits for an engine to go on with, or before it tries the same one again."""
        self.waited = 0.0
        """Seconds of waits that are over."""

    # --- tries ---

    def set_out(self, now: float) -> None:
        """Room in a decode replica is taken."""
        if self.remote and self.keys:
            cached = self.service.prefixes.cached_bytes(self.holding.address, self.keys)
            uncached = self.prompt_tokens * (1 - min(1.0, cached / max(1, self.ask.prompt_bytes)))
            self.remote = uncached >= self.service.bounds.hand_over_from
        self._try(now)

    def _try(self, now: float) -> None:
        """One more try."""
        fleet = self.service.fleet
        attempt = self.attempt = Attempt(self)
        # A table that came meanwhile may have no prefill side any more.
        if self.remote and fleet.disaggregated:
            pair = choose_pair(fleet, self.holding, tried=self.tried, prefix=self.prefix, now=now)
            if pair is not None:
                prefill, decode = pair
                self.move_to(decode)
                attempt.pair(prefill, decode, now)
                return
            if not without_prefill(self, now):
                return
        self.remote = False
        attempt.alone(self.holding, now)

    @property
    def holding(self) -> Replica:
        """The decode replica in which this request has room."""
        if self.held is None:
            raise RuntimeError("a request without a replica is being served")
        return self.held

    def move_to(self, other: Replica) -> None:
        """Have the room in another replica."""
        held = self.holding
        if other is not held:
            held.release(self.wanted)
            other.take(self.wanted)
            self.held = other

    def on_answer(self, call: Call, answer: Answer) -> None:
        """Of a leg, or of an engine that counts."""
        if call is self.counting:
            self.length_told(counted(answer))
            return
        attempt, now = self.attempt, monotonic()
        if attempt is None:
            raise RuntimeError("an answer before a question")
        outcome = attempt.answered(call, answer, now)
        if outcome is not None and not self.replied:
            self._deliver(outcome, now)

    def on_failure(self, call: Call, error: LegError) -> None:
        """Of a leg, or of an engine that counts."""
        if call is self.counting:
            self.length_told(None)
        elif not self.replied:
            error.prefill = self.attempt is not None and call is self.attempt.prefill
            self._failed(error, monotonic())

    def _failed(self, error: LegError, now: float) -> None:
        for call in self.calls:
            call.drop()
        self.calls.clear()
        self._release_params()
        if next_try(self, error, now):
            self._try(now)

    def wait(self, *, prefill: bool, now: float) -> None:
        """There is no engine to go on with; RefusedError where waiting is over."""
        self.pause = Wait(self, prefill=prefill, now=now)

    def wait_before(self, seconds: float, now: float) -> None:
        """The next try comes in so many seconds."""
        self.pause = Pause(self, seconds, now)

    def try_again(self, now: float) -> None:
        """The pause is over."""
        self.pause = None
        try:
            self._try(now)
        except Exception as exc:  # noqa: BLE001 - see `fall`
            self.fall(exc)

    def go_on(self, replica: Replica, *, decode: bool, now: float) -> None:
        """A replica accepts connections."""
        self.pause = None
        self.tried -= {replica.address}
        try:
            if decode:
                self.move_to(replica)
            self._try(now)
        except Exception as exc:  # noqa: BLE001 - see `fall`
            self.fall(exc)

    # --- delivery ---

    def _deliver(self, answer: Answer, now: float) -> None:
        if self.keys:
            self.service.prefixes.note(self.holding.address, self.keys)
        if answer.framed:
            open_stream(self, answer, now)
        else:
            deliver_whole(self, answer, now)
            self.conclude()

    def stream_ended(self) -> None:
        """The client has everything."""
        stream = self.stream
        try:
            if stream is not None:
                count_tokens(self, stream.usage, stream.tokens)
        except Exception as exc:  # noqa: BLE001 - see `fall`
            self.fall(exc)
        self.conclude()

    def stream_broke(self) -> None:
        """The client was told."""
        if not self.entry.outcome:  # else it was not the engine that ended it
            self.entry.outcome = "broken"
            self.holding.failed(monotonic())
        self.stream_ended()

    def stop(self, refused: RefusedError) -> None:
        """The proxy ends: a stream does so with an error event."""
        if self.stream is None:
            super().stop(refused)
            return
        self.request.keep_alive = False
        self.entry.outcome = "broken"
        self.stream.fail(refused.message, status=refused.status)

    # --- deadlines and the end ---

    def tick(self, now: float) -> None:
        """Of whatever is waited for."""
        stream = self.stream
        if stream is not None:
            if now > self.last or (now - stream.last > self.service.bounds.gap_s and not self.front.stalled):
                stream.fail("timeout", status=504)
        elif self.pause is not None:
            self.pause.tick(now)
        else:
            super().tick(now)

    def clean(self, now: float) -> None:
        """Give back room, calls, and what prefill still keeps."""
        Arrival.clean(self, now)
        self.pause = None
        if self.stream is not None:
            self.service.tally.cells[Total.STREAMS_OPEN] -= 1
            self.stream.drop()
        self._release_params()

    def forget(self) -> None:
        """Let go of the legs and the stream."""
        self.calls.clear()
        self.attempt = self.stream = None

    def _release_params(self) -> None:
        """KV that nobody will fetch any more is released at its prefill."""
        if self.attempt is not None and self.attempt.params is not None:
            params, self.attempt.params = self.attempt.params, None
            service = self.service
            service.releases.start(service, bytes(params), self.attempt.cohort, lines=self.lines)

    def salvage(self, connection: Connection, prefill: Replica) -> None:
        """A prefill that nobody waits for any more may have finished."""
        self.service.releases.salvage(self.service, connection, prefill, lines=self.lines)

    def note_prompt_tokens(self, exact: int) -> None:
        """An engine said how many tokens the prompt has."""
        if self.ask.countable and self.ask.prompt_tokens is None and not self.entry.input_tokens:
            self.service.lengths.learn(self.ask.prompt_bytes, min(exact, self.service.bounds.max_model_len))
        self.entry.input_tokens = exact

    @property
    def tokens_so_far(self) -> int:
        """Of a running stream."""
        return self.stream.tokens if self.stream is not None else 0

    def fall_back(self) -> None:
        """Decode prefills too."""
        self.remote = False
        self.service.tally.cells[self.row + PerClass.FALLBACK] += 1.0
