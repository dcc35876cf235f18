"""One double as a process: start, signals, drain and end as vLLM does them, and the admin port beside it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from math import inf

from disaggc.simengine.exchange import KvExchange
from disaggc.simengine.faults import Fault, FaultError, Faults, Kind, read_fault
from disaggc.simengine.frontend import Frontend
from disaggc.simengine.http import Call, Connection, Log
from disaggc.simengine.metrics import Counters
from disaggc.simengine.options import Options
from disaggc.simengine.page import state_page
from disaggc.simengine.scheduler import Scheduler

_BACKLOG = 4096
_SIGNALS = {Kind.CRASH: signal.SIGKILL, Kind.TERMINATE: signal.SIGTERM, Kind.STOP: signal.SIGSTOP}


class Engine:
    """One double. `run` returns after SIGTERM."""

    def __init__(self, options: Options, log: Log | None = None) -> None:
        self.options, self._log = options, log
        self.loop = asyncio.get_running_loop()
        self.counters = Counters(options.max_model_len, scale=options.scale)
        self.scheduler = Scheduler(options, self.counters, self.loop)
        self.exchange = (
            KvExchange(options, self.scheduler, self.counters) if options.connector is not None else None
        )
        self.faults = Faults()
        self.frontend = Frontend(options, self.scheduler, self.exchange, faults=self.faults, on_fault=self.do)
        self.connections: set[Connection] = set()
        self._admin_connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._admin: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._timers: list[asyncio.TimerHandle] = []
        self.port = self.admin_port = 0

    async def start(self) -> None:
        """Open every port; the HTTP port last, when the engine is ready. OSError when one is taken."""
        if self.options.admin is not None:
            self._admin = await self.loop.create_server(
                lambda: Connection(self._administer, self._admin_connections), *self.options.admin
            )
            self.admin_port = self._admin.sockets[0].getsockname()[1]
        if self.exchange is not None:
            await self.exchange.listen()
            self._tasks = self.exchange.tasks()
        await asyncio.sleep(self.options.start_delay_s / self.options.scale)
        await self._open()

    async def _open(self) -> None:
        port = self.port or self.options.port
        self._server = await self.loop.create_server(
            lambda: Connection(self.frontend.route, self.connections, self._log), self.options.host, port,
            backlog=_BACKLOG, reuse_address=True,
        )  # fmt: skip
        self.port = self._server.sockets[0].getsockname()[1]

    async def run(self, serving: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGTERM or SIGINT, then end as `--shutdown-timeout` says. serving: told when it does."""
        stop = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(name, stop.set)
        starting, stopping = self.loop.create_task(self.start()), self.loop.create_task(stop.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            serving()
            await stopping
        starting.cancel()
        stopping.cancel()
        await self.stop()

    async def stop(self) -> None:
        """Abort what runs, or with a shutdown timeout let it finish and leased KV be fetched."""
        self.frontend.closed = True
        if self.options.shutdown_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.options.shutdown_s / self.options.scale):
                    while self._has_work():  # noqa: ASYNC110 - work ends in many places
                        await asyncio.sleep(0.02)
        if self._server is not None:
            self._server.close()
        for sequence in self.scheduler.everything():
            self.scheduler.abort(sequence)
        await asyncio.sleep(0)
        await self._flushed()
        for task in self._tasks:
            task.cancel()
        for timer in self._timers:
            timer.cancel()
        if self.exchange is not None:
            await self.exchange.close()
        for connection in [*self.connections, *self._admin_connections]:
            connection.transport.close()
        if self._admin is not None:
            self._admin.close()

    def _has_work(self) -> bool:
        leases = len(self.exchange.supply.leases) if self.exchange is not None else 0
        return bool(self.scheduler.everything()) or leases > 0

    async def _flushed(self) -> None:
        """What was written is with the kernel, as far as clients take it."""
        for _ in range(50):
            if not any(c.transport.get_write_buffer_size() for c in self.connections if not c.frozen):
                return
            await asyncio.sleep(0.01)

    # --- faults ---

    def do(self, fault: Fault) -> None:
        """What a fault does to the process."""
        seconds = fault.seconds / self.options.scale
        match fault.kind:
            case Kind.CRASH | Kind.TERMINATE | Kind.STOP:
                os.kill(os.getpid(), _SIGNALS[fault.kind])
            case Kind.FREEZE:
                self.scheduler.stuck = True
                self._later(seconds, self.scheduler.resume)
            case Kind.SLOW:
                self.scheduler.pace(fault.factor)
                self._later(seconds, self._as_before)
            case Kind.EXPIRE_LEASES:
                if self.exchange is not None:
                    self.exchange.supply.expire(inf)
            case Kind.REUSE_LEASES:
                if self.exchange is not None:
                    self.exchange.supply.reuse()
            case Kind.REFUSE:
                if self._server is not None:
                    self._server.close()
                    self._server = None
                for connection in self.connections:
                    connection.transport.close() if not self.frontend.open else None
                self._later(seconds, self._again)
            case _:
                pass

    def _later(self, seconds: float, what: object) -> None:
        """Undo a fault after its time; without one it stays until it is switched off."""
        if seconds > 0 and callable(what):
            self._timers.append(self.loop.call_later(seconds, what))

    def _as_before(self) -> None:
        self.scheduler.pace(1.0)

    def _again(self) -> None:
        if self._server is None:
            self._tasks.append(self.loop.create_task(self._open()))

    def _well(self) -> None:
        """Every fault is over."""
        self.faults.clear()
        self._as_before()
        if self.scheduler.stuck:
            self.scheduler.resume()
        self.frontend.dead = False
        for connection in [c for c in self.connections if c.frozen]:
            connection.drop()
        self._again()

    # --- the admin port ---

    def _administer(self, connection: Connection, call: Call) -> None:
        match call.method, call.path:
            case "GET", "/state":
                state = state_page(self.options, self.scheduler, self.exchange)
                more = {"open": len(self.frontend.open), "connections": len(self.connections)}
                happened = {"happened": self.faults.happened, "on": [f.model_dump() for f in self.faults.on]}
                connection.answer_json(200, {**state, **more, **happened})
            case "POST", "/faults":
                self._switch_on(connection, call)
            case "DELETE", "/faults":
                self._well()
                connection.answer_json(200, {})
            case "POST", "/now":
                self._now(connection, call)
            case "POST", "/dead":
                self.frontend.dead = True
                for sequence in self.scheduler.everything():
                    self.scheduler.abort(sequence, "error")
                connection.answer_json(200, {})
            case "POST", "/forget":
                self.scheduler.pool.reset()
                connection.answer_json(200, {})
            case _:
                connection.answer_json(
                    404, {"error": "GET /state, POST|DELETE /faults, POST /now, /dead, /forget"}
                )

    def _switch_on(self, connection: Connection, call: Call) -> None:
        try:
            self.faults.switch_on(read_fault(call.body))
        except FaultError as exc:
            connection.answer_json(400, {"error": str(exc)})
            return
        connection.answer_json(200, {"on": [json.loads(f.model_dump_json()) for f in self.faults.on]})

    def _now(self, connection: Connection, call: Call) -> None:
        """A fault of the process without waiting for a request."""
        try:
            fault = read_fault(call.body)
        except FaultError as exc:
            connection.answer_json(400, {"error": str(exc)})
            return
        connection.answer_json(200, {})
        self.loop.call_soon(self.do, fault)
