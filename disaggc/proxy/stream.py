"""One streaming answer on its way from a decode engine to a client: bytes go through as they came.

Gets whole events and looks at them with a few byte searches: failures end the stream with an error event, KV
parameters are blanked, tokens are counted, times are taken. After the first byte there are no retries: a stream that
breaks, or ends without the engine having said that it is complete, ends with an error event, never with a silent stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from disaggc.proxy.asks import Api
from disaggc.proxy.board import Timing, Total
from disaggc.proxy.engine_json import Usage
from disaggc.proxy.events import (
    PARAMS,
    USAGE,
    cached_tokens_as,
    is_complete,
    is_failure,
    is_only_usage,
    notable_in,
    object_of,
    scrub,
    usage_apart,
    usage_of,
)
from disaggc.proxy.eventstream import split_events
from disaggc.proxy.framing import LAST_CHUNK, chunk, dechunk
from disaggc.proxy.stream_errors import error_event

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.front import Front
    from disaggc.proxy.service import Service
    from disaggc.proxy.upstream import Connection

_NO_CHOICES: Final = b'"choices":[]'


class Changes:
    """What of the engine's stream is not for the client as it is."""

    __slots__ = ("api", "cached", "hide_usage", "remote")

    def __init__(self, api: Api, *, hide_usage: bool, remote: bool, cached: int | None) -> None:
        self.api = api
        self.hide_usage = hide_usage
        """The client did not ask for it."""
        self.remote = remote
        """Decode counts what it fetched as cached; `cached` is what prefill had, None = not known."""
        self.cached = cached


class Listener(Protocol):
    """Whose stream it is: where it goes, what counts it, and who is told that it is over, unless it was dropped."""

    @property
    def service(self) -> Service:
        """What it is counted with."""

    @property
    def front(self) -> Front:
        """Where it goes."""

    @property
    def times(self) -> list[list[float]]:
        """Where seconds are noted."""

    def stream_ended(self) -> None:
        """The client has everything that the engine said."""

    def stream_broke(self) -> None:
        """It could not be completed, and the client was told."""


class Stream:
    """The sink of one decode connection, which it owns until the end."""

    __slots__ = (
        "_changes", "_complete", "_connection", "_front", "_gaps", "_head", "_listener", "_recent", "last", "over",
        "tokens", "usage",
    )  # fmt: skip

    def __init__(self, listener: Listener, changes: Changes) -> None:
        self._listener = listener
        self._front = listener.front
        self._gaps = listener.times[Timing.ITL]
        self._changes = changes
        self._connection: Connection | None = None
        self._head = b""
        self._complete = False
        """Whether the engine said that nothing is missing."""
        self._recent = b""
        """The last chunks with events: whether they say so is of interest only at the end."""
        self.tokens = 0
        self.usage: Usage | None = None
        self.last = 0.0
        """When the engine last said something."""
        self.over = False

    def start(self, head: bytes, answer: Answer) -> None:
        """Send the head with the first chunks, and take the rest."""
        self._head = head
        if not answer.ended:
            self._connection = answer.connection
            answer.connection.relay(self)
            self._front.throttle(answer.connection)
        data = self._seen(answer.body, answer.words)
        if answer.ended:
            self._ends(data)
        elif data and not self.over:
            self._send(data)

    def segment(self, data: bytes) -> None:
        """Whole events from the engine, in whole chunks."""
        data = self._seen(data, notable_in(data))
        if data and not self.over:
            self._send(data)

    def _send(self, data: bytes) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        self._front.write(data)

    def _seen(self, data: bytes, words: Sequence[bytes]) -> bytes:
        """What of it goes to the client; `words` are the notable ones in it."""
        now = monotonic()
        events = data.count(b"data: {")
        if words and USAGE in words:
            events -= data.count(_NO_CHOICES)  # counts tokens and has none
        if events > 0:
            if self.tokens:
                if events == 1:
                    self._gaps.append(now - self.last)
                else:
                    # Read at once, not made at once: the time since the last one is shared out among them.
                    self._gaps += [(now - self.last) / events] * events
            self.tokens += events
            self._recent = data
        else:
            self._eventless(data)
        self.last = now
        return self._inspected(data, words) if words else data

    def _eventless(self, data: bytes) -> None:
        """The mark of the end, comments, or events without a space, which vLLM does not send."""
        self.tokens += data.count(b"data:{")
        self._complete = self._complete or is_complete(data)

    def _inspected(self, data: bytes, words: Sequence[bytes]) -> bytes:
        """The events without what is not for the client; a failure among them ends the stream."""
        if len(words) == 1 and words[0] == USAGE and self._changes.hide_usage:
            apart = usage_apart(data)
            if apart is not None:
                data, self.usage = apart
                self._complete = True  # it follows the last token
                return data
        events = split_events(dechunk(data))
        kept: list[bytes] = []
        try:
            for event in events:
                passed, count = scrub(event) if PARAMS in words else (event, 0)
                self._listener.service.tally.cells[Total.PARAMS_SCRUBBED] += count
                said = object_of(passed)
                if said is not None:
                    if is_failure(said):
                        return self._failed_after(kept, "aborted")
                    passed = self._usage_seen(passed, said)
                kept.append(passed)
        except ValueError:
            return self._failed_after(kept, "bad-answer")
        if kept == events:
            return data
        left = b"".join(kept)
        return chunk(left) if left else b""

    def _failed_after(self, kept: list[bytes], reason: str) -> bytes:
        """What came before the failure is still good."""
        if good := b"".join(kept):
            self._send(chunk(good))
        self.fail(reason)
        return b""

    def _usage_seen(self, event: bytes, said: dict[str, Any]) -> bytes:
        usage = usage_of(event)
        if usage is None:
            return event
        self.usage = usage
        changes = self._changes
        alone = is_only_usage(said)
        self._complete = self._complete or alone  # it follows the last token
        if changes.hide_usage:
            return b"" if alone else event
        return cached_tokens_as(event, changes.cached) if changes.remote else event

    def end(self, data: bytes) -> None:
        """The engine has said everything; these are its last events."""
        connection, self._connection = self._connection, None
        if connection is not None and self._front.stalled:
            connection.resume()  # it is idle now, and must not stay paused
        self._ends(self._seen(data, notable_in(data)) if data else data)

    def _ends(self, data: bytes) -> None:
        """What of the last events goes to the client, and the end."""
        if self.over:
            return
        if not (self._complete or is_complete(self._recent)):
            if data:
                self._send(data)
            self._break("the engine stopped before the end", 502)
            return
        self.over = True
        self._send(data + LAST_CHUNK)
        self._listener.stream_ended()

    def lost(self) -> None:
        """The engine went away in the middle."""
        self._connection = None
        self._break("connection lost", 502)

    def fail(self, reason: str, *, status: int = 502) -> None:
        """Take no more of it."""
        self.drop()
        self._break(reason, status)

    def drop(self) -> None:
        """Nobody waits any more."""
        self.over = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _break(self, reason: str, status: int) -> None:
        self.over = True
        self._send(chunk(error_event(self._changes.api, reason, status)) + LAST_CHUNK)
        self._listener.stream_broke()
