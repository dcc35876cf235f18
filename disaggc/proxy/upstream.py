"""One keep-alive connection to an engine, one request at a time.

At any time it is in its pool, owned by one asker or sink, or closed: there is nothing in between. It either collects
the whole answer or stops at the first events of a stream, after which events go to a sink as they come. Knows no
OpenAI and no P/D.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from disaggc.proxy.answers import Answer, Asker, Home, Sink
from disaggc.proxy.eventstream import MAX_EVENT, EventBorders, UnchunkedBorders
from disaggc.proxy.failures import LegError
from disaggc.proxy.framing import MAX_HEAD, BadAnswerError, ChunkBorders, Head, dechunk, parse_head

MAX_WHOLE: Final = 256 << 20
Message = bytes | tuple[bytes | memoryview, ...]
"""Head and body in one, or in pieces where joining would copy much."""
Begun = Callable[[bytes], bool]
"""Whether these first events of a stream are something to tell the asker of."""


class Connection:
    """One connection to an engine: a protocol of asyncio, but not derived from it, as compiled classes cannot be."""

    __slots__ = (
        "_asker", "_begun", "_borders", "_got", "_head", "_left", "_parts", "_pool", "_requests", "_sink", "_spent",
        "_transport", "idle_since",
    )  # fmt: skip

    def __init__(self, pool: Home) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self._requests = 0
        self._spent = False
        """Whether it takes no further request, whatever the answer says: it was hung up, or more came than that."""
        self._asker: Asker | None = None
        self._sink: Sink | None = None
        self._begun: Begun | None = None
        """Set while the answer is, or may become, a stream."""
        self._head: Head | None = None
        self._parts: list[bytes] = []
        self._got = 0
        self._borders: ChunkBorders | None = None
        self._left: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Open."""
        self._transport = transport  # type: ignore[assignment]

    def ask(self, asker: Asker, message: Message, *, begun: Begun | None) -> None:
        """Send a request; `begun`: tell the asker at the first events it accepts, should the answer be a stream."""
        if self._transport is None:
            raise RuntimeError("a closed connection is asked")
        self._asker = asker
        self._begun = begun
        self._requests += 1
        if isinstance(message, bytes):
            self._pool.outbox.send(self._transport, message)
        else:
            self._pool.outbox.flush()
            self._transport.writelines(message)

    def relay(self, sink: Sink) -> None:
        """The body from now on goes to the sink, which owns the connection."""
        self._sink, self._asker = sink, None

    # --- bytes of the answer ---

    def data_received(self, data: bytes) -> None:
        """Bytes of the answer; without a question they end the connection."""
        borders = self._borders
        try:
            if self._head is None:
                rest = self._take_head(data)
                if rest is None:
                    return
                data, borders = rest, self._borders
            if borders is not None:
                data = borders.feed(data)
                ended = borders.ended
            elif self._left is not None:
                if len(data) > self._left:
                    data, self._spent = data[: self._left], True
                self._left -= len(data)
                ended = self._left == 0
            else:
                ended = False
        except BadAnswerError:
            self._fail(LegError("bad-answer"))
            return
        if ended:
            self._ended(data)
        elif data:
            if self._sink is not None:
                self._sink.segment(data)
            else:
                self._hold(data)

    def _ended(self, data: bytes) -> None:
        """The last of the body; whoever waits for it is told once nobody owns the connection any more."""
        asker, head, sink = self._asker, self._head, self._sink
        if sink is not None:
            self._free()
            sink.end(data)
        elif asker is not None and head is not None:
            if self._parts:
                data = self._joined(data)
            framed = self._begun is not None
            if self._borders is not None and not framed:
                data = dechunk(data)
            self._free()
            asker.answered(Answer(head, data, self, framed=framed, ended=True))

    def _take_head(self, data: bytes) -> bytes | None:
        """What follows the head; None while that is not whole."""
        if self._asker is None:
            raise BadAnswerError("an answer without a question")
        if self._parts:
            data = self._parts.pop() + data
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > MAX_HEAD:
                    raise BadAnswerError("a head without an end")
                self._parts.append(data)
                return None
            head = parse_head(data[:end])
            data = data[end + 4 :]
            if head.status >= 200:
                break
        self._head = head
        self._left = head.length
        if self._begun is not None and head.event_stream:
            self._borders = EventBorders() if head.chunked else UnchunkedBorders(head.length)
        else:
            self._begun = None
            self._borders = ChunkBorders() if head.chunked else None
        return data

    def _hold(self, data: bytes) -> None:
        asker, head, begun = self._asker, self._head, self._begun
        if begun is not None and asker is not None and head is not None and begun(data):
            asker.answered(Answer(head, self._joined(data), self, framed=True, ended=False))
            return
        self._parts.append(data)
        self._got += len(data)
        if self._got > (MAX_WHOLE if begun is None else MAX_EVENT):
            self._fail(LegError("bad-answer"))

    def _joined(self, data: bytes) -> bytes:
        """What was held, and this."""
        self._parts.append(data)
        data = b"".join(self._parts)
        self._parts.clear()
        self._got = 0
        return data

    def _free(self) -> None:
        """The answer is complete, and nobody owns the connection any more."""
        borders = self._borders
        spent = self._spent or (borders is not None and borders.surplus)
        keep = not spent and self._head is not None and self._head.keep_alive
        self._asker = self._sink = self._head = self._borders = None
        if keep:
            self._pool.put_back(self)
        else:
            self.close()

    # --- ends ---

    def eof_received(self) -> bool:
        """An answer without a length ends here; anything else is cut short."""
        head, borders = self._head, self._borders
        if head is not None and not head.chunked and head.length is None:
            self._spent = True
            self._ended(borders.finish() if isinstance(borders, EventBorders) else b"")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever owns it is told."""
        del exc
        self._transport = None
        fresh = self._requests <= 1 or self._head is not None or bool(self._parts)
        self._fail(LegError("reset", fresh=fresh))

    def _fail(self, error: LegError) -> None:
        asker, sink = self._asker, self._sink
        self.close()
        if sink is not None:
            sink.lost()
        elif asker is not None:
            asker.failed(error)

    def close(self) -> None:
        """End the connection at once, nobody is told; the engine sees it and aborts what it was doing."""
        self._asker = self._sink = None
        if self._transport is not None:
            self._transport.abort()

    def hang_up(self, heir: Asker) -> None:
        """Tell the engine that nobody waits; an answer that is already on its way goes to the heir.

        A closed sending side makes the engine abort what it computes; what it had finished can still be read.
        """
        self._asker = heir
        self._spent = True
        self._pool.outbox.flush()
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def pause_writing(self) -> None:
        """An engine takes a large prompt slowly: it waits in the transport, as there is no more to send after it."""

    def resume_writing(self) -> None:
        """It has taken it."""

    # --- state ---

    def pause(self) -> None:
        """Take no more bytes for now."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Take bytes again."""
        if self.usable and self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()

    @property
    def owned(self) -> bool:
        """Whether somebody waits for an answer on it."""
        return self._asker is not None or self._sink is not None

    @property
    def usable(self) -> bool:
        """Whether it can take a request."""
        return self._transport is not None and not self._transport.is_closing()
