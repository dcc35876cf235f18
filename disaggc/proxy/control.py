"""The control process: starts workers, keeps them on the newest table, watches engines, drains on SIGTERM.

It owns the listening sockets (they outlive a crashed worker), the board and the routing file. Requests never pass here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import socket

from disaggc.proxy.admin import admin_site, metrics_site
from disaggc.proxy.board import MAX_REPLICAS, Board, Shared
from disaggc.proxy.canaries import Canaries
from disaggc.proxy.probes import Probes
from disaggc.proxy.spawn import WorkerHandle, listeners, worker_process
from disaggc.proxy.tables import RoutingFile
from disaggc.routing.table import RoutingTable
from disaggc.routing.text import TableError

_LOG = logging.getLogger(__name__)
RESTART_S = 0.5
ACK_S = 10.0
WATCH_S = 0.5


class StaleError(ValueError):
    """A table of administration with a generation that is not newer than the one in effect, and different."""


class Control:
    """All of one proxy's processes."""

    def __init__(self, file: RoutingFile, table: RoutingTable, *, workers: int) -> None:
        self.file = file
        self.table = table
        self.board = Board.create(workers)
        self.slots: dict[str, int] = {}
        self.handles: dict[int, WorkerHandle] = {}
        self.draining = False
        self._listeners: list[socket.socket] = []
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._applying = asyncio.Lock()
        self._assign(table)
        self.probes = Probes(self)
        self.canaries = Canaries(self)

    # --- life ---

    async def run(self, *, ready: asyncio.Event | None = None) -> None:
        """Until SIGTERM or SIGINT, then until drained."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        where = self.table.listen
        self._listeners = listeners(where.host, where.port, count=self.board.workers)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(admin_site(self))
            await stack.enter_async_context(metrics_site(self))
            tasks = [loop.create_task(self._keep(position)) for position in range(self.board.workers)]
            watches = (self._watch_file(), self.probes.run(), self.canaries.run())
            tasks += [loop.create_task(watch) for watch in watches]
            await self.acknowledged(ACK_S)
            _LOG.info("serving %s on port %d", self.table.service, self.table.listen.port)
            if ready is not None:
                ready.set()
            await self._stop.wait()
            self.draining = True
            await self._drain()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            listener.close()

    async def _keep(self, position: int) -> None:
        """Run one worker; start it again when it dies. Its socket stays open meanwhile, so clients only wait."""
        while True:
            async with worker_process(self.board, self._listeners[position], position) as (handle, reader):
                self.handles[position] = handle
                self.part(self.canaries.apart)
                self._order(handle)
                with contextlib.suppress(ConnectionError):
                    while line := await reader.readline():
                        said = json.loads(line)
                        handle.acknowledged = said.get("generation", handle.acknowledged)
                        handle.refused = said.get("refused")
                        handle.changed.set()
                code = await asyncio.to_thread(handle.process.wait)
            self.handles.pop(position, None)
            if self.draining:
                return
            _LOG.error("worker %d ended with code %d, starting it again", position, code)
            self.board.clear_gauges(position)
            await asyncio.sleep(RESTART_S)

    async def _drain(self) -> None:
        """Let workers finish within their drain time."""
        for listener in self._listeners:
            listener.close()
        for handle in list(self.handles.values()):
            handle.writer.write(b'{"drain":true}\n')
        waiting = [asyncio.to_thread(handle.process.wait) for handle in list(self.handles.values())]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.table.timeouts.drain_s + 10):
                await asyncio.gather(*waiting)

    # --- tables ---

    def _assign(self, table: RoutingTable) -> None:
        """Give each replica a slot on the board; a slot is free again once its replica is gone."""
        wanted = [replica.address for pool in table.pools for replica in pool.replicas]
        if len(wanted) > MAX_REPLICAS:
            raise TableError(f"{len(wanted)} replicas, this proxy serves at most {MAX_REPLICAS}")
        self.slots = {address: slot for address, slot in self.slots.items() if address in set(wanted)}
        free = iter(sorted(set(range(MAX_REPLICAS)) - set(self.slots.values())))
        for address in wanted:
            if address not in self.slots:
                slot = self.slots[address] = next(free)
                for cell in range(Shared.SIZE):  # another replica may have had it
                    self.board.set_shared(slot, cell, 0.0)

    def part(self, apart: frozenset[tuple[str, str]]) -> None:
        """Tell every worker over which pairs no KV may go."""
        line = json.dumps({"apart": sorted(apart)}).encode() + b"\n"
        for handle in self.handles.values():
            handle.writer.write(line)

    def forget(self, address: str) -> None:
        """Tell every worker that this engine has started anew: its prefix cache is empty."""
        line = json.dumps({"forget": address}).encode() + b"\n"
        for handle in self.handles.values():
            handle.writer.write(line)

    def _order(self, handle: WorkerHandle) -> None:
        handle.acknowledged, handle.refused = -1, None
        order = {"table": self.table.model_dump(mode="json"), "slots": self.slots}
        handle.writer.write(json.dumps(order).encode() + b"\n")

    async def apply(self, table: RoutingTable, *, administered: bool) -> list[str]:
        """Put a table in effect on every worker; what workers refused. StaleError for an old one of administration.

        A file answers for its generation to the file before it, see `RoutingFile.read`.
        """
        async with self._applying:
            if not administered:
                table = self.file.with_drains(table, self.table)
            elif table == self.table:
                return []
            elif table.generation <= self.table.generation:
                raise StaleError(
                    f"generation {table.generation} is not above {self.table.generation}, which is in effect"
                )
            refusals = [] if table == self.table else await self._put(table)
            if not refusals:
                self.file.keep(table) if administered else self.file.accept(table)
            return refusals

    async def _put(self, table: RoutingTable) -> list[str]:
        """Every worker or none takes the table; what they refused."""
        before = self.table, self.slots
        self._assign(table)
        self.table = table
        for handle in self.handles.values():
            self._order(handle)
        refusals = await self.acknowledged(ACK_S)
        if refusals:
            self.table, self.slots = before
            for handle in self.handles.values():  # those that took it go back
                self._order(handle)
            await self.acknowledged(ACK_S)
        return refusals

    async def acknowledged(self, seconds: float) -> list[str]:
        """Wait until every worker has the table in effect; what they refused, or who did not answer."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline:
            handles = list(self.handles.values())
            refused = [h.refused for h in handles if h.refused and h.acknowledged == self.table.generation]
            if refused:
                return refused
            if len(handles) == self.board.workers and all(
                h.acknowledged == self.table.generation for h in handles
            ):
                return []
            await asyncio.sleep(0.01)
        return [f"worker {h.position} did not answer" for h in self.handles.values()] or [
            "no worker is running"
        ]

    async def _watch_file(self) -> None:
        """Read the routing file when it was replaced, at once after SIGHUP. A bad one changes nothing and is said.

        SIGHUP has a bad one tried again: what it lacked, e.g. a key, may be there now.
        """
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reload.wait(), WATCH_S)
            again = self._reload.is_set() and self.file.rejected is not None
            self._reload.clear()
            if not self.file.changed() and not again:
                continue
            try:
                table = self.file.read(self.table)
                if table is None:
                    continue
                refusals = await self.apply(table, administered=False)
            except (TableError, OSError) as exc:
                refusals = [str(exc)]
            if refusals:
                self.file.reject("; ".join(refusals))
