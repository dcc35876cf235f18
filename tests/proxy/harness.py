"""A worker of the proxy and scripted engines in one event loop, and a plain client that sees every byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass, field
from typing import Any

import uvloop

from disaggc.proxy.board import Board, Total
from disaggc.proxy.upstream import Connection
from disaggc.proxy.worker import Worker
from tests.proxy.engine import Engine

FAST = {
    "connect_s": 0.5, "prefill_s": 0.6, "first_byte_s": 0.6, "gap_s": 0.5, "total_s": 5.0, "handoff_s": 1.0,
    "queue_s": 0.5, "client_read_s": 0.5, "client_write_s": 1.0, "idle_client_s": 5.0, "idle_upstream_s": 0.4, "drain_s": 2.0,
}  # fmt: skip


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [line.decode() if line == b"[DONE]" else json.loads(line) for line in lines]


@dataclass
class Stack:
    prefills: list[Engine] = field(default_factory=lambda: [Engine("p0")])
    decodes: list[Engine] = field(default_factory=lambda: [Engine("d0")])
    table: dict[str, Any] = field(default_factory=dict)
    cohorts: dict[str, str] = field(default_factory=dict)
    port: int = 0

    def routing(self, generation: int = 1, **changes: Any) -> dict[str, Any]:
        def entry(role: str, index: int, engine: Engine) -> dict[str, Any]:
            kv = {
                "host": "127.0.0.1",
                "side_channel_port": 5600,
                "bootstrap_port": 8998,
                "notify_port": 61005,
                "engine_id": engine.name,
            }
            return {
                "address": f"chat/{role}/{index}", "host": "127.0.0.1", "port": engine.port,
                "cohort": self.cohorts.get(engine.name, "a"), "kv": kv,
            }  # fmt: skip

        pools = [
            {
                "address": f"chat/{role}",
                "role": role,
                "replicas": [entry(role, i, e) for i, e in enumerate(engines)],
            }
            for role, engines in (("prefill", self.prefills), ("decode", self.decodes))
            if engines
        ]
        table = {
            "service": "chat", "generation": generation, "models": ["m"], "dialect": "nixl", "max_model_len": 4096,
            "pools": pools, "timeouts": FAST, "log": {"access": False}, "health": {"eject_after": 3, "open_s": 0.3},
        }  # fmt: skip
        return {**table, **self.table, **changes}

    async def order(self, table: dict[str, Any]) -> dict[str, Any]:
        addresses = [r["address"] for pool in table["pools"] for r in pool["replicas"]]
        self._slots.update({a: len(self._slots) + i for i, a in enumerate(addresses) if a not in self._slots})
        order = {"table": table, "slots": self._slots}
        self._writer.write(json.dumps(order).encode() + b"\n")
        return json.loads(await asyncio.wait_for(self._reader.readline(), 5))

    @contextlib.asynccontextmanager
    async def up(self):
        self._slots: dict[str, int] = {}
        for engine in (*self.prefills, *self.decodes):
            await engine.start()
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.board = Board.create(1)
        self.worker = Worker(0, self.board, listener, link=theirs)
        task = asyncio.ensure_future(self.worker.run())
        self._reader, self._writer = await asyncio.open_connection(sock=ours)
        try:
            said = await self.order(self.routing())
            assert said == {"generation": 1}, said
            yield self
        finally:
            self._writer.close()
            await asyncio.wait_for(task, 10)
            self.check_connections()
            for engine in (*self.prefills, *self.decodes):
                await engine.stop()

    @property
    def connections(self) -> set[Connection]:
        """All that were opened to engines, whoever has them."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Loop), "run a stack by `run` of this module"
        return loop.connections

    def check_connections(self) -> None:
        """Without a request, every open connection to an engine is idle in its pool."""
        replicas = self.worker._service.fleet.replicas.values()
        idle = {connection for replica in replicas for connection in replica.pool.idle}
        # uvloop tells nobody of a connection that it closes because opening it was given up, but it has no socket then
        opened = [
            c for c in self.connections if c.usable and c._transport.get_extra_info("socket") is not None
        ]
        left = [c for c in opened if c.owned or c not in idle]
        assert not left, f"{len(left)} connections to engines belong to nobody"

    def total(self, cell: Total) -> float:
        return self.board.total(cell)

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)

    async def ask(self, body: dict[str, Any] | bytes, path: str = "/v1/completions", **headers: str) -> Reply:
        reader, writer = await self.connect()
        try:
            writer.write(request(body, path, **headers))
            return await asyncio.wait_for(read_reply(reader), 15)
        finally:
            writer.close()

    async def say(self, raw: bytes) -> Reply:
        reader, writer = await self.connect()
        try:
            writer.write(raw)
            return await asyncio.wait_for(read_reply(reader), 15)
        finally:
            writer.close()

    async def quiet(self, seconds: float = 2.0) -> None:
        """Wait until nothing runs any more."""
        async with asyncio.timeout(seconds):
            while (
                self.total(Total.REQUESTS_OPEN)
                or self.worker._service.releases.running
                or any(r.pool._opening for r in self.worker._service.fleet.replicas.values())
            ):
                await asyncio.sleep(0.01)
        self.check_connections()

    @property
    def pinned(self) -> int:
        return sum(len(e.pinned) for e in self.prefills)


def request(
    body: dict[str, Any] | bytes, path: str = "/v1/completions", method: str = "POST", **headers: str
) -> bytes:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in headers.items())
    return f"{method} {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {len(raw)}\r\n{lines}\r\n".encode() + raw


class Loop(uvloop.Loop):
    """The loop the proxy uses, which keeps what connects to engines: a compiled pool asks no patched class."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: set[Connection] = set()
        self.short: OSError | None = None
        """Why this process can open no connection to an engine."""

    async def create_connection(self, factory, *args, **kwargs):
        def listed():
            protocol = factory()
            if isinstance(protocol, Connection):
                if self.short is not None:
                    raise self.short
                self.connections.add(protocol)
            return protocol

        return await super().create_connection(listed, *args, **kwargs)


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:]) if k}
    if headers.get("transfer-encoding") != "chunked":
        return Reply(status, headers, await reader.readexactly(int(headers.get("content-length", 0))))
    body = b""
    try:
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            data = await reader.readexactly(size + 2)
            body += data[:-2]
            if size == 0:
                return Reply(status, headers, body)
    except (asyncio.IncompleteReadError, ConnectionError):
        return Reply(status, headers, body, complete=False)


def run(coroutine, seconds: float | None = 60) -> Any:
    """Run a test's coroutine on the loop the proxy uses."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(asyncio.wait_for(coroutine, seconds))


def prompt(**more: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": "hello world " * 40, "max_tokens": 4, **more}
