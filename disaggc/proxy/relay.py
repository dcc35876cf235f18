"""One streaming answer on its way from a decode engine to a client: bytes go through as they came.

Looks at each segment with a few byte searches: failures end the stream with an error event, KV parameters are
blanked, tokens are counted, times are taken. Knows no routing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from disaggc.proxy.board import Timing, Total
from disaggc.proxy.events import (
    KV_KEY,
    Usage,
    events_of,
    is_failure,
    is_suspect,
    scrub,
    usage_of,
    without_usage_event,
)
from disaggc.proxy.failures import LegError
from disaggc.proxy.framing import BadAnswerError
from disaggc.proxy.tally import Tally
from disaggc.proxy.upstream import Connection

_TAIL = len(KV_KEY) - 1


class Client(Protocol):
    """Where the bytes go."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def throttle(self, connection: Connection | None) -> None:
        """Pause this engine connection while the client does not take its bytes; None = no longer."""


class StreamRelay:
    """The sink of one decode connection."""

    __slots__ = (
        "_client", "_clock", "_connection", "_count", "_head", "_hide_usage", "_position", "_tail", "_tally",
        "done", "last", "tokens", "usage",
    )  # fmt: skip

    def __init__(
        self, client: Client, connection: Connection, tally: Tally, *, position: int, hide_usage: bool
    ) -> None:
        self._client = client
        self._connection = connection
        self._tally = tally
        self._position = position
        self._hide_usage = hide_usage
        self._clock: Callable[[], float] = monotonic
        self._tail = b""
        self._head = b""
        self.tokens = 0
        self.usage: Usage | None = None
        self.last = monotonic()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, head: bytes, first: bytes, *, ended: bool) -> None:
        """Send the head with the first bytes and take the rest."""
        self._client.throttle(self._connection)
        self._head = head
        self.segment(first)
        if ended:
            self.end()
        elif not self.done.done():
            self._connection.relay(self)

    def segment(self, data: bytes) -> None:
        """Whole chunks from the engine."""
        now = self._clock()
        events = data.count(b"data: {")
        if events:
            if self.tokens:
                self._tally.timing(self._position, Timing.ITL, now - self.last)
            self.tokens += events
            self._tally.cells[Total.TOKENS_SO_FAR] += events
        self.last = now
        if KV_KEY in data or (self._tail and KV_KEY in self._tail + data[:_TAIL]):
            data = self._scrubbed(data)
        self._tail = b"" if data.endswith(b"\n\n\r\n") else data[-_TAIL:]
        if b'"usage":{' in data:
            data = self._usage_seen(data)
        if is_suspect(data) and self._is_failure(data):
            self._fail("aborted")
        elif data and not self.done.done():
            if self._head:
                data, self._head = self._head + data, b""
            self._client.write(data)

    def _scrubbed(self, data: bytes) -> bytes:
        try:
            data, count = scrub(data)
        except ValueError:
            self._fail("bad-answer")
            return b""
        self._tally.cells[Total.PARAMS_SCRUBBED] += count
        return data

    def _usage_seen(self, data: bytes) -> bytes:
        self.usage = usage_of(data) or self.usage
        try:
            return without_usage_event(data) if self._hide_usage else data
        except BadAnswerError:
            return data

    def _is_failure(self, data: bytes) -> bool:
        try:
            return any(is_failure(event) for event in events_of(data))
        except BadAnswerError:
            return False

    def end(self) -> None:
        """The engine has said everything."""
        if not self.done.done():
            self.done.set_result(None)

    def lost(self, reason: str) -> None:
        """The engine went away in the middle."""
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self._head:
            self._client.write(self._head)
            self._head = b""
        if not self.done.done():
            self.done.set_exception(LegError(reason))
        self._connection.close()

    @property
    def may_inject(self) -> bool:
        """Whether an error event may follow what the client has got."""
        return self._connection.may_inject
