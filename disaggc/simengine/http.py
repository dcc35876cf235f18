"""HTTP/1.1 on raw asyncio protocols: requests in, whole or chunked answers out. Knows no API.

One request at a time per connection; a connection that closes aborts what it asked for.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

_LOG = logging.getLogger(__name__)
_SSE = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Call:
    """One request."""

    __slots__ = ("body", "headers", "method", "path", "target")

    def __init__(self, method: str, target: str, *, headers: Mapping[str, str], body: bytes) -> None:
        self.method, self.target, self.headers, self.body = method, target, headers, body
        self.path = urlsplit(target).path


Route = Callable[["Connection", Call], None]
Log = Callable[["Connection", Call, int], None]


class Connection(asyncio.Protocol):
    """One client."""

    __slots__ = (
        "_body",
        "_busy",
        "_call",
        "_headers",
        "_keep",
        "_log",
        "_parser",
        "_queue",
        "_route",
        "_url",
        "all",
        "frozen",
        "on_lost",
        "transport",
    )

    def __init__(self, route: Route, everyone: set[Connection], log: Log | None = None) -> None:
        self._route, self.all, self._log = route, everyone, log
        self._call: Call | None = None
        """While nothing of its answer is out."""
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Call] = deque()
        self._busy = False
        self._keep = True
        self.frozen = False
        """Nothing is read and nothing written any more, and the other side is not told."""
        self.on_lost: Callable[[], None] | None = None
        self.transport: asyncio.Transport = cast("asyncio.Transport", None)
        self.on_message_begin()

    # --- asyncio ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        self.transport = cast("asyncio.Transport", transport)
        self.all.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        """The client went."""
        self.all.discard(self)
        lost, self.on_lost = self.on_lost, None
        if lost is not None:
            lost()

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            # No fault of the client's: the parser wraps what the double itself raised while it answered.
            _LOG.exception("a request met a bug in the double")
            said = {"error": {"message": "Internal server error", "type": "InternalServerError", "code": 500}}
            self.answer(500, json.dumps(said).encode(), keep=False)
        except httptools.HttpParserError:
            self.answer(400, b"Invalid HTTP request received.", kind="text/plain; charset=utf-8", keep=False)

    # --- httptools ---

    def on_message_begin(self) -> None:
        """A request begins."""
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        """A part of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All headers are there."""
        if self._headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """A part of its body."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """The request is whole."""
        target = self._url.decode("latin-1")
        self._keep = self._parser.should_keep_alive()
        self._queue.append(
            Call(self._parser.get_method().decode(), target, headers=self._headers, body=b"".join(self._body))
        )
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._busy = bool(self._queue)
        if self._busy:
            self._call = self._queue.popleft()
            self._route(self, self._call)

    # --- answers ---

    def answer(
        self,
        status: int,
        body: bytes,
        *,
        kind: str = "application/json",
        keep: bool = True,
        more: bytes = b"",
    ) -> None:
        """A whole answer; the connection takes the next request."""
        self._note(status)
        keep = keep and self._keep
        close = b"" if keep else b"connection: close\r\n"
        head = b"HTTP/1.1 %d %b\r\nserver: uvicorn\r\ncontent-length: %d\r\ncontent-type: %b\r\n%b%b\r\n" % (
            status, _PHRASES.get(status, "").encode(), len(body), kind.encode(), close, more,
        )  # fmt: skip
        self.write(head + body)
        self._done(keep=keep)

    def answer_json(self, status: int, said: Any) -> None:
        """A whole answer in JSON."""
        self.answer(status, json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode())

    def start_stream(self) -> None:
        """The head of a stream of events."""
        self._note(200)
        self.write(_SSE)

    def end_stream(self) -> None:
        """The stream is whole."""
        self.write(LAST)
        self._done(keep=self._keep)

    def write(self, data: bytes) -> None:
        """Bytes to the client, unless it is gone or frozen."""
        if not self.frozen and not self.transport.is_closing():
            self.transport.write(data)

    def drop(self) -> None:
        """Reset the connection."""
        self.transport.abort()

    def _note(self, status: int) -> None:
        """An answer begins."""
        call, self._call = self._call, None
        if self._log is not None and call is not None and not self.frozen:
            self._log(self, call, status)

    def _done(self, *, keep: bool) -> None:
        self.on_lost = None
        if not keep:
            self.transport.close()
            return
        self._next()


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunks(events: bytes) -> bytes:
    """Each of several events as a chunk of its own, as vLLM's server sends them."""
    return b"".join([chunk(event + b"\n\n") for event in events.split(b"\n\n") if event])
