"""Doubles in the test's own event loop, and a small client for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import uvloop

from disaggc.simengine.engine import Engine
from disaggc.simengine.options import read_options
from tests.ports import free_port
from tests.proxy.harness import Reply, read_reply, request

BASE = [
    "--served-model-name",
    "m",
    "--host",
    "127.0.0.1",
    "--block-size",
    "16",
    "--max-model-len",
    "2048",
    "--max-num-seqs",
    "64",
]
PREFILL = {"do_remote_decode": True, "do_remote_prefill": False}


def transfer(
    name: str = "NixlConnector", role: str = "kv_both", policy: str = "fail", **extra: Any
) -> list[str]:
    config = {
        "kv_connector": name,
        "kv_role": role,
        "kv_load_failure_policy": policy,
        "kv_connector_extra_config": extra,
    }
    return ["--kv-transfer-config", json.dumps(config)]


class Double:
    """One engine and how to talk to it."""

    def __init__(self, *flags: str, env: dict[str, str] | None = None, model: str = "tiny") -> None:
        side = {"VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
        arguments = ["serve", model, *BASE, "--port", str(free_port()), "--time-scale", "20", *flags]
        self.engine = Engine(read_options(arguments, {**side, **(env or {})}))

    async def start(self) -> Double:
        await self.engine.start()
        return self

    @property
    def leases(self) -> int:
        return len(self.engine.exchange.supply.leases)

    async def raw(self, data: bytes) -> Reply:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.engine.port, limit=1 << 24)
        try:
            writer.write(data)
            return await asyncio.wait_for(read_reply(reader), 20)
        finally:
            writer.close()

    async def post(self, path: str, body: dict[str, Any] | bytes, **headers: str) -> Reply:
        return await self.raw(request(body, path, **headers))

    async def get(self, path: str) -> Reply:
        return await self.raw(request(b"", path, "GET"))

    async def complete(self, prompt: Any, tokens: int = 8, **more: Any) -> Reply:
        body = {
            "model": "m",
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "return_token_ids": True,
            **more,
        }
        return await self.post("/v1/completions", body)

    async def prefill(self, prompt: Any, **more: Any) -> dict[str, Any]:
        reply = await self.complete(prompt, 1, kv_transfer_params=PREFILL, **more)
        assert reply.status == 200, reply.body
        return reply.json["kv_transfer_params"]

    async def metrics(self) -> dict[str, float]:
        """Metrics by name, summed over labels; labelled ones also by `name{value}`."""
        found: dict[str, float] = {}
        for line in (await self.get("/metrics")).body.decode().splitlines():
            if not line.startswith("#"):
                name, _, rest = line.partition("{")
                labels, _, value = rest.rpartition(" ")
                found[name] = found.get(name, 0.0) + float(value)
                for part in labels.rstrip("}").split(","):
                    key, _, text = part.partition("=")
                    if key in ("source", "reason", "stage", "finished_reason"):
                        found[f"{name}{{{text.strip(chr(34))}}}"] = float(value)
        return found

    def leaked(self) -> int:
        """Blocks in use that belong to no sequence and no lease."""
        scheduler = self.engine.scheduler
        owned = {b for s in scheduler.everything() for b in s.blocks}
        leased = self.engine.exchange.supply.leases.owned if self.engine.exchange else set()
        return scheduler.pool.used - len(owned | leased)


@contextlib.asynccontextmanager
async def up(*doubles: Double):
    for double in doubles:
        await double.start()
    try:
        yield doubles
    finally:
        for double in doubles:
            await double.engine.stop()


def ids(reply: Reply) -> list[int]:
    assert reply.status == 200, reply.body
    return reply.json["choices"][0]["token_ids"]


def run(coroutine: Any) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(coroutine, 60))


async def until(condition: Any, seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
