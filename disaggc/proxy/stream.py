"""One streaming answer on its way from a decode engine to a client: bytes go through as they came.

Looks at each segment with a few byte searches: failures end the stream with an error event, KV parameters are
blanked, tokens are counted, times are taken. After the first byte there are no retries: a stream that breaks ends with
an error event, or, where its framing does not allow one, with a cut connection, never with a silent stop.
"""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, Protocol

from disaggc.proxy.asks import MESSAGES, RESPONSES, Api
from disaggc.proxy.board import Timing, Total
from disaggc.proxy.events import (
    KV_KEY,
    PARAMS,
    USAGE,
    Usage,
    events_of,
    is_failure,
    notable_in,
    scrub,
    usage_of,
    with_cached_tokens,
    without_usage_event,
)
from disaggc.proxy.framing import LAST_CHUNK, BadAnswerError, chunk

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.front import Front
    from disaggc.proxy.tally import Tally
    from disaggc.proxy.upstream import Connection

_TAIL = len(KV_KEY) - 1


class Changes(NamedTuple):
    """What of the engine's stream is not for the client as it is."""

    api: Api
    hide_usage: bool
    """The client did not ask for it."""
    remote: bool
    """Decode counts what it fetched as cached; `cached` is what prefill had, None = not known."""
    cached: int | None


class Listener(Protocol):
    """Who is told that a stream is over; told once, unless it dropped the stream."""

    def stream_ended(self) -> None:
        """The client has everything that the engine said."""

    def stream_broke(self, *, cut: bool) -> None:
        """It cannot be completed; `cut`: nothing may follow what the client has got."""


class Stream:
    """The sink of one decode connection, which it owns until the end."""

    __slots__ = (
        "_changes", "_connection", "_front", "_gaps", "_head", "_listener", "_tail", "_tally", "last",
        "over", "tokens", "usage",
    )  # fmt: skip

    def __init__(
        self, listener: Listener, front: Front, tally: Tally, *, position: int, changes: Changes
    ) -> None:
        self._listener = listener
        self._front = front
        self._tally = tally
        self._gaps = tally.times[position][Timing.ITL]
        self._changes = changes
        self._connection: Connection | None = None
        self._head = b""
        self._tail = b""
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
        self.segment(answer.body)
        if answer.ended and not self.over:
            self.end()

    def segment(self, data: bytes) -> None:
        """Whole chunks from the engine."""
        now = monotonic()
        events = data.count(b"data: {")
        if events:
            if self.tokens:
                self._gaps.append(now - self.last)
            self.tokens += events
        self.last = now
        words = notable_in(data)
        if words or self._tail:
            data = self._inspected(data, words)
            if self.over:
                return
        if not data.endswith(b"\n\n\r\n"):
            self._tail = data[-_TAIL:]
        if self._head:
            data, self._head = self._head + data, b""
        self._front.write(data)

    def _inspected(self, data: bytes, words: list[bytes]) -> bytes:
        """The data without what is not for the client; a failure in it ends the stream."""
        tail, self._tail = self._tail, b""
        if PARAMS in words or (tail and KV_KEY in tail + data[:_TAIL]):
            try:
                data, count = scrub(data)
            except ValueError:
                self.fail("bad-answer")
                return b""
            self._tally.cells[Total.PARAMS_SCRUBBED] += count
        if USAGE in words:
            data = self._usage_seen(data)
        if len(words) > words.count(USAGE) + words.count(PARAMS) and _is_failure(data):
            self.fail("aborted")
        return data

    def _usage_seen(self, data: bytes) -> bytes:
        self.usage = usage_of(data) or self.usage
        changes = self._changes
        try:
            if changes.hide_usage:
                return without_usage_event(data)
            return with_cached_tokens(data, changes.cached) if changes.remote else data
        except BadAnswerError:
            return data

    def end(self) -> None:
        """The engine has said everything."""
        connection, self._connection = self._connection, None
        self.over = True
        if connection is not None and self._front.stalled:
            connection.resume()  # it is idle now, and must not stay paused
        self._listener.stream_ended()

    def lost(self, *, at_border: bool) -> None:
        """The engine went away in the middle."""
        self._connection = None
        self._break("connection lost", 502, at_border=at_border)

    def fail(self, reason: str, *, status: int = 502) -> None:
        """Take no more of it."""
        at_border = self._connection is None or self._connection.at_border
        self.drop()
        self._break(reason, status, at_border=at_border)

    def drop(self) -> None:
        """Nobody waits any more."""
        self.over = True
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _break(self, reason: str, status: int, *, at_border: bool) -> None:
        self.over = True
        untouched, self._head = self._head, b""
        if not untouched and not at_border:
            self._listener.stream_broke(cut=True)
            return
        self._front.write(untouched + chunk(error_event(self._changes.api, reason, status)) + LAST_CHUNK)
        self._listener.stream_broke(cut=False)


def _is_failure(data: bytes) -> bool:
    try:
        return any(is_failure(event) for event in events_of(data))
    except BadAnswerError:
        return False


def error_event(api: Api, reason: str, status: int) -> bytes:
    """The event by which clients of that API learn that a stream failed."""
    message = f"decode failed while streaming: {reason}"
    said: dict[str, object]
    if api is MESSAGES:
        said = {"type": "error", "error": {"type": "api_error", "message": message}}
    elif api is RESPONSES:
        said = {"type": "error", "code": "upstream_error", "message": message}
    else:
        said = {"error": {"message": message, "type": "upstream_error", "param": None, "code": status}}
    event = b"event: error\n" if api in (MESSAGES, RESPONSES) else b""
    return event + b"data: " + json.dumps(said).encode() + b"\n\n"
