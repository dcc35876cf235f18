"""One keep-alive connection to an engine, one request at a time.

A leg either collects the whole answer or stops at its first body bytes, after which the bytes go to a sink as they
come. Deadlines are set from outside by failing the waiting future. Knows no OpenAI and no P/D.
"""

from __future__ import annotations

import asyncio

from disaggc.proxy.answers import Answer, Home, Sink
from disaggc.proxy.failures import LegError
from disaggc.proxy.framing import MAX_HEAD, BadAnswerError, ChunkBorders, Head, dechunk, parse_head
from disaggc.proxy.members import Pieces

MAX_WHOLE = 256 << 20
LARGE = 1 << 16
"""Bodies above are sent piece by piece instead of being copied into one."""


class Connection(asyncio.Protocol):
    """One connection to an engine."""

    __slots__ = (
        "_borders", "_got", "_head", "_left", "_parts", "_pool", "_sink", "_stream",
        "hung", "idle_since", "owner", "requests", "transport", "waiter",
    )  # fmt: skip

    def __init__(self, pool: Home) -> None:
        self._pool = pool
        self.transport: asyncio.Transport | None = None
        self.waiter: asyncio.Future[Answer] | None = None
        self.idle_since = 0.0
        self.requests = 0
        self.hung = False
        self._reset()

    def _reset(self) -> None:
        self.owner: object = None
        self._head: Head | None = None
        self._parts: list[bytes] = []
        self._got = 0
        self._borders: ChunkBorders | None = None
        self._left: int | None = None
        self._sink: Sink | None = None
        self._stream = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for a request."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")  # noqa: S101 - for the type only
        self.transport = transport  # type: ignore[assignment]

    def ask(self, head: bytes, body: Pieces, *, owner: object, stream: bool) -> asyncio.Future[Answer]:
        """Send a request; the future gives the whole answer, or with `stream` a 200 stopped at its first body bytes."""
        self._reset()
        self._stream = stream
        self.owner = owner
        self.requests += 1
        self.waiter = asyncio.get_running_loop().create_future()
        if self.transport is None or self.transport.is_closing():
            self.waiter.set_exception(LegError("reset", fresh=False))
            return self.waiter
        if sum(map(len, body)) > LARGE:
            self.transport.writelines([head, *body])
        else:
            self.transport.write(b"".join((head, *body)))
        return self.waiter

    def relay(self, sink: Sink) -> None:
        """Body bytes from now on go to the sink; what came meanwhile goes first."""
        self._sink = sink
        parts, self._parts = self._parts, []
        for part in parts:
            sink.segment(part)
        if self._finished():
            self._done()

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer; without a question they end the connection."""
        try:
            if self._head is None:
                data = self._take_head(data)
                if not data:
                    return
            self._take_body(data)
        except BadAnswerError as exc:
            self._fail(LegError("bad-answer"), str(exc))

    def _take_head(self, data: bytes) -> bytes:
        if self.waiter is None or self.waiter.done():
            raise BadAnswerError("an answer without a question")
        if self._parts:
            data = self._parts.pop() + data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > MAX_HEAD:
                raise BadAnswerError("a head without an end")
            self._parts.append(data)
            return b""
        head = parse_head(data[:end])
        if head.status < 200:
            rest = data[end + 4 :]
            return self._take_head(rest) if rest else b""
        self._head = head
        if head.chunked:
            self._borders = ChunkBorders()
        self._left = head.length
        if head.status != 200 or not head.value(b"content-type").startswith(b"text/event-stream"):
            self._stream = False
        data = data[end + 4 :]
        if not data and self._finished():
            self._done()
        return data

    def _take_body(self, data: bytes) -> None:
        if self._borders is not None:
            data = self._borders.feed(data)
        elif self._left is not None:
            if len(data) > self._left:
                raise BadAnswerError("more bytes than content-length")
            self._left -= len(data)
        if data:
            if self._sink is not None:
                self._sink.segment(data)
            else:
                self._hold(data)
        if self._finished():
            self._done()

    def _hold(self, data: bytes) -> None:
        self._parts.append(data)
        self._got += len(data)
        if self._got > MAX_WHOLE:
            raise BadAnswerError("an answer too large to hold")
        if self._stream:
            self._first()

    def _first(self) -> None:
        """The first body bytes of a stream: hand over and wait for the sink."""
        if self.waiter is not None and not self.waiter.done() and self._head is not None:
            body, self._parts = b"".join(self._parts), []
            self.waiter.set_result(Answer(self._head, body, ended=self._finished(), connection=self))

    def _finished(self) -> bool:
        if self._head is None:
            return False
        return self._borders.ended if self._borders is not None else self._left == 0

    def _done(self) -> None:
        sink, head = self._sink, self._head
        if self.waiter is not None and not self.waiter.done() and head is not None:
            body = b"".join(self._parts)
            whole = dechunk(body) if self._borders is not None and not self._stream else body
            self.waiter.set_result(Answer(head, whole, ended=True, connection=self))
        elif sink is None and (self._parts or not self.usable):
            return
        self._sink = None
        if sink is not None:
            sink.end()
        keep = head is not None and head.keep_alive and not self.hung
        self._reset()
        self.waiter = None
        if keep:
            self._pool.put_back(self)
        else:
            self.close()

    def eof_received(self) -> bool:
        """An answer without a length ends here; anything else is cut short."""
        if self._head is not None and self._borders is None and self._left is None:
            self._left = 0
            self._head.keep_alive = False
            if self._sink is not None or (self.waiter is not None and not self.waiter.done()):
                self._done()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever waits is told."""
        self.transport = None
        self._pool.forget(self)
        fresh = self.requests <= 1 or self._head is not None or bool(self._parts)
        self._fail(LegError("reset", fresh=fresh), "connection lost" if exc is None else "connection reset")

    def _fail(self, error: LegError, reason: str) -> None:
        waiter, sink = self.waiter, self._sink
        self.waiter, self._sink = None, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
            waiter.exception()  # asked for here, as who waited may be gone
        if sink is not None:
            sink.lost(reason)
        self.close()

    def pause(self) -> None:
        """Take no more bytes for now."""
        if self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Take bytes again."""
        if self.transport is not None and not self.transport.is_closing() and not self.transport.is_reading():
            self.transport.resume_reading()

    @property
    def usable(self) -> bool:
        """Whether it can take a request."""
        return self.transport is not None and not self.transport.is_closing()

    def close(self) -> None:
        """End the connection at once; the engine sees it and aborts what it was doing."""
        self._sink = None
        if self.transport is not None:
            self.transport.abort()

    def abandon(self, owner: object) -> None:
        """Close it if this owner's answer is not complete; a connection that went back is another's."""
        if self.owner is owner:
            self.owner = None
            self.close()

    def hang_up(self) -> asyncio.Future[Answer]:
        """Tell the engine that nobody waits, and still take an answer that is already on its way.

        A closed sending side makes the engine abort what it computes; what it had finished can still be read.
        """
        self.owner = None
        self.hung = True
        self.waiter = asyncio.get_running_loop().create_future()
        if self.transport is None or self.transport.is_closing():
            self.waiter.set_exception(LegError("reset"))
        elif self.transport.can_write_eof():
            self.transport.write_eof()
        return self.waiter

    @property
    def may_inject(self) -> bool:
        """Whether what went to the sink ends at a chunk border."""
        return self._borders is not None and self._borders.at_border
