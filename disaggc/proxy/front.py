"""One client connection: requests one at a time, answers with back-pressure both ways, deadlines of its own.

Hands each request to an exchange and knows nothing of what that does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Final, Protocol

from disaggc.proxy.board import Total
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.outlet import Outlet
from disaggc.proxy.requests import Request, answer_head, error_body, path_and_query
from disaggc.proxy.service import Service

_MAX_PIPELINED: Final = 64
"""Answered one from within the other: 64 take half the depth that Python allows."""


class Running(Protocol):
    """A request being served."""

    def start(self) -> None:
        """Serve; may be finished when this returns."""

    @property
    def tokens_so_far(self) -> int:
        """Of a running stream."""

    def tick(self, now: float) -> None:
        """Check deadlines."""

    def client_left(self) -> None:
        """Nobody waits any more."""

    def client_took(self) -> None:
        """What was written so far is with the client."""

    def stop(self, refused: RefusedError) -> None:
        """End it now, in a way that the client understands."""


class Front(Outlet):
    """A client connection."""

    __slots__ = ("_expecting", "_queue", "_refusal", "_serve", "peers", "running")

    def __init__(
        self, service: Service, peers: set[Front], serve: Callable[[Front, Request], Running]
    ) -> None:
        super().__init__(service)
        self.peers = peers
        self.running: Running | None = None
        self._serve = serve
        self._queue: deque[Request] | None = None
        """None unless something has to wait for the answer under way: requests, or one of the two below."""
        self._refusal: RefusedError | None = None
        """The last answer of this connection, in its turn."""
        self._expecting = False
        """Whether `100 Continue` is to be said, in its turn."""

    # --- connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; over the limit it is told so and let go."""
        self.transport = transport  # type: ignore[assignment]
        self.peers.add(self)
        self.since = monotonic()
        cells = self.service.tally.cells
        cells[Total.CONNECTIONS] += 1
        cells[Total.CONNECTIONS_OPEN] = len(self.peers)
        if len(self.peers) > self.service.max_clients:
            cells[Total.ACCEPT_FULL] += 1
            self.refuse(RefusedError(503, "too many connections", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what it asked for is stopped."""
        del exc
        self.peers.discard(self)
        self.service.tally.cells[Total.CONNECTIONS_OPEN] = len(self.peers)
        self.transport = None
        self._queue = None
        self.stalled = False
        self.discard()
        if self._throttled is not None:
            self._throttled.resume()
        running, self.running = self.running, None
        if running is not None:
            running.client_left()

    def eof_received(self) -> bool:
        """A client that has closed its sending side has left."""
        return False

    # --- requests ---

    def arrived(self, request: Request) -> None:
        """Serve it, or let it wait for the one before it."""
        if self.running is None and not self.closing:
            running = self.running = self._serve(self, request)
            running.start()
            return
        if b"expect" in request.headers:
            self._expecting = False
        queue = self._wait()
        if len(queue) == _MAX_PIPELINED:
            self.refuse(RefusedError(400, "too many requests ahead of their answers"))
        else:
            queue.append(request)

    def body_begun(self) -> None:
        """Ahead of an answer, no more of it is read: what waits here would count as nobody's memory."""
        if self.running is not None:
            self._wait()

    def _wait(self) -> deque[Request]:
        """Read no more until the answer under way is out; what has to wait for that."""
        if self.transport is not None:
            self.transport.pause_reading()
        if self._queue is None:
            self._queue = deque()
        return self._queue

    def client_caught_up(self) -> None:
        """What was written is with the client."""
        if self.running is not None:
            self.running.client_took()

    def expected(self) -> None:
        """Tell the client to go on, once the answers before are out."""
        if self.running is None and not self._whole:
            self._go_on()
            return
        self._expecting = True
        self._wait()

    def _go_on(self) -> None:
        self._expecting = False
        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # --- answering ---

    def finished(self, now: float, *, keep_alive: bool) -> None:
        """The answer is complete: next request, or close."""
        self.running = None
        self._throttled = None
        self.since = now
        if self.transport is None:
            return
        if not keep_alive or (self._queue is None and (self.closing or self.service.draining)):
            self._close(now)
        elif self._queue is not None:
            self._next(now)

    def _next(self, now: float) -> None:
        """What had to wait for the answer that is out now."""
        if self._queue:
            running = self.running = self._serve(self, self._queue.popleft())
            running.start()
        elif self._refusal is not None:
            self._say(self._refusal)
        elif self.closing or self.service.draining:
            self._close(now)
        elif self._expecting:
            self._go_on()
        if not self._queue and not self.closing and self.transport is not None:
            if not self._expecting:
                self._queue = None
            self._began = now
            if not self.transport.is_reading():
                self.transport.resume_reading()

    def _close(self, now: float) -> None:
        """Close once everything is sent."""
        self.closing = True
        self._queue = None
        self.watch(now)
        self.service.outbox.flush()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Cut the connection: the answer cannot be completed in any valid way."""
        self.closing = True
        if self.transport is not None:
            self.transport.abort()

    def refuse(self, refused: RefusedError) -> None:
        """Answer a request that never became one, in its turn, and close."""
        if self.closing:
            return
        self.closing = True
        self.discard()
        self.service.tally.cells[Total.REFUSED_BAD] += 1
        if self.running is None:
            self._say(refused)
            return
        self._refusal = refused
        self._wait()

    def _say(self, refused: RefusedError) -> None:
        """The last answer."""
        if self.transport is None:
            return
        body = error_body(refused, path_and_query(self._url)[0])
        lines = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
        if refused.status == 401:
            lines += b"www-authenticate: Bearer\r\n"
        if refused.retry_after is not None:
            lines += b"retry-after: %d\r\n" % refused.retry_after
        self._queue = None
        self.watch(monotonic())
        self.service.outbox.flush()
        self.transport.write(answer_head(refused.status, lines, keep_alive=False) + body)
        if self.receiving and self.transport.can_write_eof():
            self.transport.write_eof()
            if not self.transport.is_reading():
                self.transport.resume_reading()
        else:
            self.transport.close()

    # --- deadlines ---

    def tick(self, now: float) -> None:
        """Deadlines of the connection and of the request on it."""
        if (self.stalled or (self.closing and self.running is None)) and self.stuck(now):
            self.abort()
        elif self.running is not None:
            self.running.tick(now)
        elif self.closing or self.stalled:
            return
        elif self.receiving:
            if self.late(now):
                self.refuse(RefusedError(408, "the request did not arrive in time"))
        elif now - self.since > self.service.table.timeouts.idle_client_s or self.service.draining:
            self._close(now)

    def stop(self) -> None:
        """The time for finishing is over: whoever still waits is told so."""
        self._queue = self._refusal = None
        refused = RefusedError(503, "the proxy is shutting down", retry_after=1)
        if self.running is not None:
            self.closing = True
            self.running.stop(refused)
        elif self.receiving:
            self.refuse(refused)
