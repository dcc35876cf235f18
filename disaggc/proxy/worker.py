"""One worker process: accepts clients on an inherited socket and serves them by the tables it is sent.

The control process starts it with a link (a socket pair), a listening socket and the board. It sends tables and
`drain`; the worker acknowledges each generation once it is in effect. When the link ends, the worker drains and exits.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import socket
import ssl
import sys
from contextlib import suppress
from time import monotonic
from typing import cast

import uvloop

from disaggc.proxy.accesslog import AccessLog
from disaggc.proxy.anycall import PASSED, AnyCall, Health, StoredResponse, Unknown, is_stored
from disaggc.proxy.asks import APIS
from disaggc.proxy.board import Board, Total
from disaggc.proxy.exchange import Exchange
from disaggc.proxy.fleet import WorkerView
from disaggc.proxy.front import Front
from disaggc.proxy.generation import Generation
from disaggc.proxy.requests import Request
from disaggc.proxy.service import SecretError, Service
from disaggc.proxy.tally import Tally
from disaggc.routing.table import RoutingTable, load_table

_LOG = logging.getLogger(__name__)
BACKLOG = 4096
GOODBYE_S = 2.0
"""For the last answers of requests that did not end within the drain time to get to their clients."""
MAX_ORDER = 64 << 20
GC_THRESHOLDS = (50_000, 20, 100)
"""A request leaves few cycles; looking for them every 700 objects costs 5 % of the time."""


def serve(front: Front, request: Request) -> Exchange:
    """The exchange for a request, not started."""
    service, path, method = front.service, request.path, request.method
    if path in APIS and method == b"POST":
        return Generation(service, front, request)
    if PASSED.get(path) == method:
        return AnyCall(service, front, request)
    if path in (b"/health", b"/ready") and method in (b"GET", b"HEAD"):
        return Health(service, front, request)
    if is_stored(path, method):
        return StoredResponse(service, front, request)
    return Unknown(service, front, request, known=path in APIS or path in PASSED)


class Worker:
    """The worker's life."""

    def __init__(self, position: int, board: Board, listener: socket.socket, *, link: socket.socket) -> None:
        self._position = position
        self._board = board
        self._listener = listener
        self._link = link
        self._fronts: set[Front] = set()
        self._service: Service | None = None
        self._server: asyncio.Server | None = None
        self._drain = asyncio.Event()
        self._apart: frozenset[tuple[str, str]] = frozenset()

    async def run(self) -> None:
        """Serve until drained."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: None)
        reader, writer = await asyncio.open_connection(sock=self._link, limit=MAX_ORDER)
        sweep = loop.create_task(self._sweep())
        orders = loop.create_task(self._orders(reader, writer))
        await self._drain.wait()
        await self._finish()
        sweep.cancel()
        orders.cancel()
        with suppress(OSError):
            writer.write(b'{"drained":true}\n')
            await writer.drain()
            writer.close()

    async def _orders(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            order = json.loads(line)
            if order.get("drain"):
                break
            if "apart" in order:
                self._apart = frozenset((prefill, decode) for prefill, decode in order["apart"])
                if self._service is not None:
                    self._service.fleet.part(self._apart)
                continue
            if "forget" in order:
                if self._service is not None:
                    self._service.prefixes.forget(order["forget"])
                continue
            answer: dict[str, object] = {"generation": order["table"]["generation"]}
            try:
                await self._use(load_table(json.dumps(order["table"])), order["slots"])
            except (SecretError, OSError) as exc:
                answer["refused"] = str(exc)
            except Exception as exc:  # noqa: BLE001 - a bug must not leave the worker deaf
                _LOG.exception("a table met a bug")
                answer["refused"] = f"{type(exc).__name__}: {exc}"
            writer.write(json.dumps(answer).encode() + b"\n")
        self._drain.set()

    async def _use(self, table: RoutingTable, slots: dict[str, int]) -> None:
        if self._service is not None:
            self._service.use(table, slots)
            return
        tls = _client_tls(table)
        view = WorkerView(self._board, Tally(self._board.region(self._position)))
        service = Service(table, slots, view, log=_open_log(table))
        service.fleet.part(self._apart)
        fronts = self._fronts
        self._server = await asyncio.get_running_loop().create_server(
            lambda: cast("asyncio.Protocol", Front(service, fronts, serve)),
            sock=self._listener,
            backlog=BACKLOG,
            ssl=tls,
        )
        self._service = service
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)

    async def _sweep(self) -> None:
        """Deadlines, a few times a second: one pass over the connections instead of a timer for each."""
        while True:
            service = self._service
            await asyncio.sleep(0.25 if service is None else _sweep_every(service.table))
            if service is None:
                continue
            try:
                self._pass(service, monotonic())
            except Exception:  # noqa: BLE001 - without the sweep nothing would have a deadline any more
                service.report_bug()

    def _pass(self, service: Service, now: float) -> None:
        tokens = 0
        for front in list(self._fronts):
            try:
                front.tick(now)
                if front.running is not None:
                    tokens += front.running.tokens_so_far
            except Exception:  # noqa: BLE001 - a bug must not take other requests with it
                service.report_bug()
                front.abort()
        service.fleet.close_idle(now)
        service.releases.tick(now)
        service.gate.pump(now)
        service.tally.cells[Total.TOKENS_SO_FAR] = tokens
        service.tally.cells[Total.LOG_DROPPED] = service.log.dropped
        service.tally.digest()

    async def _until_closed(self, seconds: float) -> None:
        """Wait for the clients' connections to end."""
        deadline = monotonic() + seconds
        while self._fronts and monotonic() < deadline:  # noqa: ASYNC110 - connections end in many ways, none of them an event
            await asyncio.sleep(0.05)

    async def _finish(self) -> None:
        """Accept no more, finish what runs within the drain time, tell the rest."""
        service = self._service
        if service is None:
            return
        service.draining = True
        if self._server is not None:
            self._server.close()
        await self._until_closed(service.table.timeouts.drain_s)
        for front in list(self._fronts):
            front.stop()
        await self._until_closed(GOODBYE_S)
        for front in list(self._fronts):
            front.abort()
        await self._until_closed(0.2)
        await service.releases.finish()
        service.tally.digest()
        service.log.flush()


def _sweep_every(table: RoutingTable) -> float:
    limits = table.timeouts
    shortest = min(
        limits.prefill_s, limits.first_byte_s, limits.gap_s, limits.queue_s, limits.idle_upstream_s
    )
    return max(0.02, min(0.25, shortest / 8))


def _open_log(table: RoutingTable) -> AccessLog:
    if not table.log.access:
        return AccessLog(None)
    if table.log.file is None:
        return AccessLog(sys.stderr.fileno())
    return AccessLog(os.open(table.log.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640))


def _client_tls(table: RoutingTable) -> ssl.SSLContext | None:
    files = table.listen.tls
    if files is None or files.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    if files.ca:
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def main(arguments: list[str]) -> int:
    """`python -m disaggc.proxy.worker POSITION WORKERS BOARD-FD LISTENER-FD LINK-FD`, started by control."""
    position, workers, board_fd, listener_fd, link_fd = map(int, arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    listener = socket.socket(fileno=listener_fd)
    listener.settimeout(0)
    link = socket.socket(fileno=link_fd)
    link.settimeout(0)

    async def live() -> None:
        await Worker(position, Board(board_fd, workers), listener, link=link).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(live())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
