"""One request from a client, served: admission, one or two legs, retries until the first byte, the answer.

The order of events and what may follow what stands here; how bytes travel stands in front, legs and relay.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, TypeVar

from disaggc.proxy.accesslog import Entry
from disaggc.proxy.board import PerClass, Timing, Total
from disaggc.proxy.failures import ClientGoneError, LegError, RefusedError, Stage
from disaggc.proxy.front import Front
from disaggc.proxy.relay import StreamRelay
from disaggc.proxy.requests import Request, answer_head, error_body, request_id
from disaggc.proxy.service import Service
from disaggc.proxy.upstream import Connection

T = TypeVar("T")


class Exchange:
    """What every kind of request shares: deadlines, the client, the log line."""

    __slots__ = (
        "_task", "_waits", "answered", "clock", "connections", "entry", "front", "gone",
        "position", "relay", "request", "service", "started", "upstream_id",
    )  # fmt: skip

    def __init__(self, service: Service, front: Front, request: Request) -> None:
        self.service = service
        self.front = front
        self.request = request
        self.clock = time.monotonic
        self.started = time.monotonic()
        self.position = service.position(request.headers.get(service.class_header, b""))
        self.upstream_id = request_id(request.headers.get(b"x-request-id"))
        self.entry = Entry(
            request=self.upstream_id,
            method=request.method.decode("latin-1"),
            path=request.path.decode("latin-1"),
            workload=service.class_names[self.position],
        )
        self.connections: list[Connection] = []
        self.relay: StreamRelay | None = None
        self.answered = False
        self.gone = False
        self._waits: list[tuple[asyncio.Future[Any], Stage, float]] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Serve in a task of its own."""
        self._task = asyncio.get_running_loop().create_task(self._serve())

    # --- deadlines and the client ---

    async def within(self, stage: Stage, seconds: float, future: asyncio.Future[T]) -> T:
        """Wait for a future; the sweep fails it when the stage's time, or the request's, is over."""
        deadline = min(self.clock() + seconds, self.started + self.service.table.timeouts.total_s)
        wait = (future, stage, deadline)
        self._waits.append(wait)
        try:
            return await future
        finally:
            self._waits.remove(wait)

    def tick(self, now: float) -> None:
        """Called by the sweep, a few times a second."""
        silent = (
            self.relay is not None
            and not self.front.stalled
            and now - self.relay.last > self.service.table.timeouts.gap_s
        )
        for future, stage, deadline in self._waits:
            if (now > deadline or silent) and not future.done():
                future.set_exception(LegError("timeout", status=504, stage=stage))

    def client_left(self) -> None:
        """Stop everything for a client that is gone."""
        self.gone = True
        if self._task is not None:
            self._task.cancel()

    # --- the life of a request ---

    async def _serve(self) -> None:
        cells = self.service.tally.cells
        cells[Total.REQUESTS_OPEN] += 1
        keep_alive = self.request.keep_alive
        try:
            await self.work()
        except RefusedError as refused:
            keep_alive = self._answer_error(refused) and keep_alive
        except (asyncio.CancelledError, ClientGoneError):
            self.entry.outcome = "client-gone"
            keep_alive = False
        except Exception:  # noqa: BLE001 - a bug must not take other requests with it; it is counted and said
            keep_alive = self._answer_error(RefusedError(500, "internal error of the proxy")) and keep_alive
            self.service.report_bug()
        finally:
            cells[Total.REQUESTS_OPEN] -= 1
            for connection in self.connections:
                connection.abandon(self.connections)
            self._account()
            if not self.gone:
                self.front.finished(keep_alive=keep_alive and self.entry.outcome != "cut")

    async def work(self) -> None:
        """Serve the request."""
        raise NotImplementedError

    def _answer_error(self, refused: RefusedError) -> bool:
        """An error answer, where nothing went out yet."""
        self.entry.status = self.entry.status or refused.status
        self.entry.outcome = self.entry.outcome or ("refused" if refused.status < 500 else "failed")
        if self.answered:
            return False
        headers = []
        if refused.retry_after is not None:
            headers.append((b"retry-after", b"%d" % refused.retry_after))
        self.respond(refused.status, b"application/json", error_body(refused), headers=headers)
        return True

    def respond(
        self,
        status: int,
        content_type: bytes,
        body: bytes,
        *,
        headers: list[tuple[bytes, bytes]] | None = None,
    ) -> None:
        """A whole answer."""
        self.answered = True
        self.entry.status = status
        lines = [
            (b"content-type", content_type or b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"x-request-id", self.upstream_id.encode("ascii")),
            *(headers or []),
        ]
        head = answer_head(status, lines, keep_alive=self.request.keep_alive)
        self.front.write(head if self.request.method == b"HEAD" else head + body)

    def _account(self) -> None:
        tally, entry, position = self.service.tally, self.entry, self.position
        total = self.clock() - self.started
        entry.total_ms = total * 1e3
        tally.by_class(position, PerClass.REQUESTS)
        match entry.outcome:
            case "":
                entry.outcome = "ok" if entry.status < 400 else "refused"
                if entry.status < 400:
                    tally.by_class(position, PerClass.OK)
                    tally.timing(position, Timing.E2E, total)
                else:
                    tally.by_class(
                        position, PerClass.CLIENT_ERROR if entry.status < 500 else PerClass.SERVER_ERROR
                    )
            case "client-gone":
                tally.by_class(position, PerClass.CLIENT_GONE)
            case "broken" | "cut":
                tally.by_class(position, PerClass.BROKEN_STREAM)
            case _:
                tally.by_class(
                    position, PerClass.CLIENT_ERROR if entry.status < 500 else PerClass.SERVER_ERROR
                )
        if entry.retries:
            tally.by_class(position, PerClass.RETRIES, entry.retries)
        self.service.log.write(entry, time.time())
