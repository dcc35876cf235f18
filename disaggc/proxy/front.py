"""One client connection: strict HTTP parsing with limits, one request at a time, back-pressure both ways.

Hands each request to a task and knows nothing of what it does. Ambiguous framing is refused by llhttp's strict mode:
two lengths, a length beside chunked, bare line feeds, folded headers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Protocol

import httptools

from disaggc.proxy.board import Total
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.requests import Request, answer_head, error_body
from disaggc.proxy.service import Service
from disaggc.proxy.upstream import Connection

_SINGLE = frozenset(
    {b"host", b"authorization", b"content-length", b"transfer-encoding", b"content-type", b"x-api-key"}
)
_MAX_PIPELINED = 16
LINGER_S = 2.0
"""A refused client may still be sending its body: closing at once would take the answer from it."""


class Running(Protocol):
    """A request being served."""

    def tick(self, now: float) -> None:
        """Check deadlines."""

    def client_left(self) -> None:
        """Nobody waits any more."""


class Front(asyncio.Protocol):
    """A client connection."""

    __slots__ = (
        "_body", "_body_size", "_field_bytes", "_fields", "_headers", "_in_body", "_parser", "_queue", "_serve",
        "_since", "_stalled_since", "_throttled", "_url", "closing", "peers", "receiving", "running", "service",
        "transport",
    )  # fmt: skip

    def __init__(
        self, service: Service, peers: set[Front], serve: Callable[[Front, Request], Running]
    ) -> None:
        self.service = service
        self.peers = peers
        self._serve = serve
        self._parser = httptools.HttpRequestParser(self)
        self._queue: deque[Request] = deque()
        self.transport: asyncio.Transport | None = None
        self.running: Running | None = None
        self._throttled: Connection | None = None
        self._stalled_since = 0.0
        self._since = 0.0
        self.closing = False
        self._fresh()

    def _fresh(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._fields: list[tuple[bytes, bytes]] = []
        self._field_bytes = 0
        self._body: list[bytes] = []
        self._body_size = 0
        self.receiving = False
        self._in_body = False

    # --- connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; over the limit it is told so and let go."""
        self.transport = transport  # type: ignore[assignment]
        self.peers.add(self)
        self._since = monotonic()
        cells = self.service.tally.cells
        cells[Total.CONNECTIONS] += 1
        cells[Total.CONNECTIONS_OPEN] = len(self.peers)
        if len(self.peers) > self.service.table.limits.connections:
            cells[Total.ACCEPT_FULL] += 1
            self._refuse(RefusedError(503, "too many connections", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what it asked for is stopped."""
        del exc
        self.peers.discard(self)
        self.service.tally.cells[Total.CONNECTIONS_OPEN] = len(self.peers)
        self.transport = None
        self._queue.clear()
        if self._throttled is not None:
            self._throttled.resume()
        running, self.running = self.running, None
        if running is not None:
            running.client_left()

    def eof_received(self) -> bool:
        """A client that has closed its sending side has left."""
        return False

    def pause_writing(self) -> None:
        """The client does not keep up: take no more from the engine."""
        self._stalled_since = monotonic()
        if self._throttled is not None:
            self._throttled.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._stalled_since = 0.0
        if self._throttled is not None:
            self._throttled.resume()

    @property
    def stalled(self) -> bool:
        """Whether the client does not take its bytes."""
        return self._stalled_since > 0

    # --- parsing ---

    def data_received(self, data: bytes) -> None:
        """Bytes of requests."""
        if self.closing:
            return
        if self._in_body or not self.receiving:
            self._since = monotonic()
        self.receiving = True
        self._field_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as exc:
            said = exc.__context__
            self._refuse(said if isinstance(said, RefusedError) else RefusedError(400, "bad request"))
        except httptools.HttpParserError:
            self._refuse(RefusedError(400, "the request is not valid HTTP/1.1"))
        else:
            if not self._in_body and self._field_bytes > self._header_limit:
                self._refuse(RefusedError(431, "the request headers are too large"))

    @property
    def _header_limit(self) -> int:
        return self.service.table.limits.header_bytes

    def on_message_begin(self) -> None:
        """A request starts."""
        self.receiving = True

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._url += url
        if len(self._url) > 8192:
            raise RefusedError(431, "the request target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._fields.append((name.lower(), value))

    def _collect(self) -> None:
        """Headers by name; a repeated one that says who or how long is refused, others are joined."""
        headers = self._headers = dict(self._fields)
        if (
            self._field_bytes > self._header_limit
            and sum(len(n) + len(v) for n, v in self._fields) > self._header_limit
        ):
            raise RefusedError(431, "the request headers are too large")
        if len(headers) == len(self._fields):
            return
        joined: dict[bytes, bytes] = {}
        for name, value in self._fields:
            if name in joined and name in _SINGLE:
                raise RefusedError(400, f"header `{name.decode('latin-1')[:40]}` stands twice")
            joined[name] = joined[name] + b", " + value if name in joined else value
        self._headers = joined

    def on_headers_complete(self) -> None:
        """The head is complete: refuse what would be refused anyway before its body is read."""
        self._in_body = True
        self._since = monotonic()
        self._collect()
        headers = self._headers
        if self._parser.should_upgrade():
            raise RefusedError(400, "protocol upgrades are not supported")
        if self._parser.get_http_version() == "1.1":
            if b"host" not in headers:
                raise RefusedError(400, "the Host header is missing")
        elif b"transfer-encoding" in headers:
            raise RefusedError(400, "HTTP/1.0 has no transfer-encoding")
        length = headers.get(b"content-length", b"")
        limit = self.service.table.limits.body_bytes
        if length and int(length) > limit:
            raise RefusedError(413, f"the request body has {int(length)} bytes, the limit is {limit}")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise RefusedError(415, "compressed request bodies are not supported")
        if not self._may_enter(headers):
            raise RefusedError(401, "the API key is missing or wrong")
        if headers.get(b"expect", b"").lower() == b"100-continue" and self.transport is not None:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _may_enter(self, headers: dict[bytes, bytes]) -> bool:
        if self._url.split(b"?")[0] in (b"/health", b"/ready"):
            return True
        if self.service.authorised(headers.get(b"authorization", b""), headers.get(b"x-api-key", b"")):
            return True
        self.service.tally.cells[Total.REFUSED_AUTH] += 1
        return False

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_size += len(body)
        limit = self.service.table.limits.body_bytes
        if self._body_size > limit:
            raise RefusedError(413, f"the request body is larger than the limit of {limit} bytes")
        self._body.append(body)

    def on_message_complete(self) -> None:
        """A request is complete: serve it, or let it wait for the one before it."""
        path, _, query = self._url.partition(b"?")
        request = Request(
            method=self._parser.get_method(),
            path=path,
            query=query,
            headers=self._headers,
            body=b"".join(self._body) if len(self._body) != 1 else self._body[0],
            keep_alive=self._parser.should_keep_alive(),
            old=self._parser.get_http_version() != "1.1",
        )
        self._fresh()
        if self.running is None and not self.closing:
            self.running = self._serve(self, request)
            return
        self._queue.append(request)
        if len(self._queue) > _MAX_PIPELINED:
            raise RefusedError(400, "too many requests ahead of their answers")
        if self.transport is not None:
            self.transport.pause_reading()

    # --- answering ---

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self.transport is not None:
            self.transport.write(data)

    def throttle(self, connection: Connection | None) -> None:
        """Pause this engine connection while the client does not take its bytes; None = no longer."""
        self._throttled = connection
        if connection is not None and self._stalled_since:
            connection.pause()

    def finished(self, *, keep_alive: bool) -> None:
        """The answer is complete: next request, or close."""
        self.running = None
        self._throttled = None
        self._since = monotonic()
        if self.transport is None:
            return
        if not keep_alive or self.closing or (self.service.draining and not self._queue):
            self.closing = True
            self.transport.close()
            return
        if self._queue:
            self.running = self._serve(self, self._queue.popleft())
        if not self._queue and not self.transport.is_reading():
            self.transport.resume_reading()

    def abort(self) -> None:
        """Cut the connection: the answer cannot be completed in any valid way."""
        self.closing = True
        if self.transport is not None:
            self.transport.abort()

    def _refuse(self, refused: RefusedError) -> None:
        """Answer a request that never became one, and close. A request still running ends with the connection."""
        self.closing = True
        self.service.tally.cells[Total.REFUSED_BAD] += 1
        if self.transport is None:
            return
        if self.running is not None:
            self.transport.abort()
            return
        body = error_body(refused)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if refused.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        self.transport.write(answer_head(refused.status, headers, keep_alive=False) + body)
        self._since = monotonic()
        if self.receiving and self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()

    def tick(self, now: float) -> None:
        """Deadlines of the connection and of the request on it."""
        limits = self.service.table.timeouts
        if self.running is not None:
            if self._stalled_since and now - self._stalled_since > limits.client_write_s:
                self.abort()
                return
            self.running.tick(now)
        elif self.closing:
            if now - self._since > LINGER_S:
                self.abort()
        elif self.receiving:
            if now - self._since > limits.client_read_s:
                self._refuse(RefusedError(408, "the request did not arrive in time"))
        elif now - self._since > limits.idle_client_s or (
            self.service.draining and self.transport is not None
        ):
            self.closing = True
            if self.transport is not None:
                self.transport.close()
