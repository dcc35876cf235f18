"""One client connection: requests one at a time, answers with back-pressure both ways, deadlines of its own.

Hands each request to an exchange and knows nothing of what that does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from disaggc.proxy.board import Total
from disaggc.proxy.failures import RefusedError
from disaggc.proxy.intake import Intake
from disaggc.proxy.requests import Request, answer_head, error_body
from disaggc.proxy.service import Service
from disaggc.proxy.upstream import Connection

_MAX_PIPELINED = 16
LINGER_S = 2.0
"""A refused client may still be sending its body: closing at once would take the answer from it."""


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


class Front(Intake):
    """A client connection."""

    __slots__ = ("_queue", "_serve", "_stalled_since", "_throttled", "peers", "running")

    def __init__(
        self, service: Service, peers: set[Front], serve: Callable[[Front, Request], Running]
    ) -> None:
        super().__init__(service)
        self.peers = peers
        self.running: Running | None = None
        self._serve = serve
        self._queue: deque[Request] | None = None
        self._throttled: Connection | None = None
        self._stalled_since = 0.0

    # --- connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected; over the limit it is told so and let go."""
        self.transport = transport  # type: ignore[assignment]
        self.peers.add(self)
        self.since = monotonic()
        cells = self.service.tally.cells
        cells[Total.CONNECTIONS] += 1
        cells[Total.CONNECTIONS_OPEN] = len(self.peers)
        if len(self.peers) > self.service.table.limits.connections:
            cells[Total.ACCEPT_FULL] += 1
            self.refuse(RefusedError(503, "too many connections", retry_after=1))

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: what it asked for is stopped."""
        del exc
        self.peers.discard(self)
        self.service.tally.cells[Total.CONNECTIONS_OPEN] = len(self.peers)
        self.transport = None
        self._queue = None
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

    # --- requests ---

    def arrived(self, request: Request) -> None:
        """Serve it, or let it wait for the one before it."""
        if self.running is None and not self.closing:
            running = self.running = self._serve(self, request)
            running.start()
            return
        if self._queue is None:
            self._queue = deque()
        self._queue.append(request)
        if len(self._queue) > _MAX_PIPELINED:
            raise RefusedError(400, "too many requests ahead of their answers")
        if self.transport is not None:
            self.transport.pause_reading()

    # --- answering ---

    def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        if self.transport is not None:
            self.service.outbox.send(self.transport, data)

    def throttle(self, connection: Connection | None) -> None:
        """Pause this engine connection while the client does not take its bytes; None = no longer."""
        self._throttled = connection
        if connection is not None and self._stalled_since:
            connection.pause()

    def finished(self, now: float, *, keep_alive: bool) -> None:
        """The answer is complete: next request, or close."""
        self.running = None
        self._throttled = None
        self.since = now
        if self.transport is None:
            return
        if not keep_alive or self.closing or (self.service.draining and not self._queue):
            self._close()
            return
        if self._queue is None:
            return
        if self._queue:
            running = self.running = self._serve(self, self._queue.popleft())
            running.start()
        if not self._queue and self.transport is not None and not self.transport.is_reading():
            self._queue = None
            self.transport.resume_reading()

    def _close(self) -> None:
        """Close once everything is sent."""
        self.closing = True
        self.service.outbox.flush()
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Cut the connection: the answer cannot be completed in any valid way."""
        self.closing = True
        if self.transport is not None:
            self.transport.abort()

    def refuse(self, refused: RefusedError) -> None:
        """Answer a request that never became one, and close. A request still running ends with the connection."""
        self.closing = True
        self.service.tally.cells[Total.REFUSED_BAD] += 1
        if self.transport is None:
            return
        if self.running is not None:
            self.transport.abort()
            return
        body = error_body(refused)
        lines = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
        if refused.status == 401:
            lines += b"www-authenticate: Bearer\r\n"
        self.service.outbox.flush()
        self.transport.write(answer_head(refused.status, lines, keep_alive=False) + body)
        self.since = monotonic()
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
            if now - self.since > LINGER_S:
                self.abort()
        elif self.receiving:
            if now - self.since > limits.client_read_s:
                self.refuse(RefusedError(408, "the request did not arrive in time"))
        elif now - self.since > limits.idle_client_s or self.service.draining:
            self._close()
