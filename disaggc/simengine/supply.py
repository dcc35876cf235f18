"""The prefill side of a transfer: keeps finished KV under a lease and answers the decode side over the side channel."""

from __future__ import annotations

import asyncio
import os
import uuid
from contextlib import suppress
from hashlib import sha256
from math import inf
from typing import Any

from disaggc.simengine.blocks import BlockPool
from disaggc.simengine.leases import Lease, Leases
from disaggc.simengine.metrics import Counters
from disaggc.simengine.options import Options
from disaggc.simengine.sequence import Sequence
from disaggc.simengine.wire import Said, SideChannel

_DEFAULT_LEASE_S = 30.0
ANY_ADDRESS = {"localhost": "127.0.0.1"}


def compatibility(options: Options) -> str:
    """What both sides must agree on before KV moves; as with NIXL, versions and names but no sizes."""
    connector = options.connector
    dialect = connector.dialect if connector is not None else ""
    said = (
        options.version,
        options.model,
        options.dtype,
        options.kv_cache_dtype,
        options.speculative,
        dialect,
    )
    return sha256("\0".join(said).encode()).hexdigest()


class Supply:
    """Leases and the listener of one engine."""

    def __init__(self, options: Options, pool: BlockPool, counters: Counters) -> None:
        self._options, self._pool, self._counters = options, pool, counters
        connector = options.connector
        assert connector is not None  # noqa: S101 - built only with one
        self.dialect = connector.dialect
        self.leases = Leases(pool.give_back)
        self.engine_id = connector.engine_id or str(uuid.uuid4())
        self.host = options.env.get("VLLM_NIXL_SIDE_CHANNEL_HOST", "localhost")
        self.port = 0
        self.lease_s = self._lease_s() / options.scale
        self._channel = SideChannel(self._answer)
        self._waiters: dict[str, asyncio.Future[Said]] = {}

    def _lease_s(self) -> float:
        connector, options = self._options.connector, self._options
        assert connector is not None  # noqa: S101 - as above
        match self.dialect:
            case "mooncake":
                return options.number("VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT", 480)
            case "moriio" | "moriio-read":
                return connector.seconds("defer_timeout", 60)
            case _:
                return connector.seconds("kv_lease_duration", _DEFAULT_LEASE_S)

    async def listen(self) -> None:
        """Open the side channel where the dialect says; OSError when the port is taken."""
        connector = self._options.connector
        assert connector is not None  # noqa: S101 - as above
        if self.dialect.startswith("nixl"):
            port = int(self._options.number("VLLM_NIXL_SIDE_CHANNEL_PORT", 5600))
            self.port = await self._channel.listen(ANY_ADDRESS.get(self.host, self.host), port)
        else:
            self.host = str(connector.extra.get("host_ip") or self._options.host)
            handshake = connector.extra.get("handshake_port", 6301) if self.dialect != "mooncake" else 0
            self.port = await self._channel.listen(self._options.host, int(handshake))

    def close(self) -> None:
        """Listen no more."""
        self._channel.close()

    async def reap(self) -> None:
        """End leases that are over, for as long as the engine lives."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(0.25, self.lease_s / 20))
            self.expire(loop.time())

    def expire(self, now: float) -> int:
        """End the leases that are over at this time; how many."""
        count = self.leases.expire(now)
        if count:
            self._counters.transfer("kv_expired_reqs", count)
        return count

    def reuse(self) -> None:
        """End every lease, and write other prompts where they were."""
        blocks = sorted(self.leases.owned)
        self.expire(inf)
        self._pool.overwrite(blocks)

    # --- what the scheduler asks ---

    def keep(self, sequence: Sequence, reason: str) -> bool:
        """Whether the blocks stay for decode; sets the answer's parameters."""
        pulls = self.dialect.startswith("nixl")
        if reason != "length" and not (pulls and reason == "stop"):
            return False
        until = asyncio.get_running_loop().time() + self.lease_s
        lease = Lease(sequence.name, sequence.key, sequence.blocks, sequence.prompt, until)
        count = -(-sequence.prompt // self._options.block_size)
        if self.dialect in ("nixl", "moriio-read"):
            sequence.params = self._params(sequence, sequence.blocks[:count])
        waiter = self._waiters.pop(sequence.key, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(self._contents(sequence.blocks[:count], sequence.prompt))
            return False
        self.leases.add(lease)
        return True

    def _params(self, sequence: Sequence, blocks: list[int]) -> dict[str, Any]:
        said: dict[str, Any] = {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_block_ids": [blocks],
            "remote_engine_id": self.engine_id,
            "remote_request_id": sequence.name,
            "remote_host": self.host,
            "remote_port": self.port,
            "tp_size": self._options.tp,
            "dcp_size": self._options.dcp,
            "pp_size": self._options.pp,
            "remote_num_tokens": sequence.prompt,
            "remote_blocks_expiry_time": None,
            "transfer_mode": "pull",
            "remote_prefill_cached_tokens": sequence.cached,
        }
        if self.dialect == "moriio-read":
            said |= {"remote_handshake_port": self.port, "transfer_id": sequence.key}
        return said

    # --- what the decode side asks ---

    async def _answer(self, said: Said) -> Said | None:
        match said.get("op"):
            case "meta":
                return {
                    "engine_id": self.engine_id,
                    "compatibility": compatibility(self._options),
                    "block_size": self._options.block_size,
                    "process": os.getpid(),
                }
            case "read":
                if said.get("engine_id") not in (None, self.engine_id):
                    return {"error": "engine id mismatch"}
                return self._contents(said["blocks"], 0)
            case "wait":
                return await self._wait(said)
            case "done":
                if self.leases.free(str(said.get("request"))) == "late":
                    self._counters.transfer("notifications_after_expiry")
            case "beat":
                until = asyncio.get_running_loop().time() + self.lease_s * 2 / 3
                for name in said.get("requests", ()):
                    self.leases.extend(name, until)
        return None

    async def _wait(self, said: Said) -> Said:
        """KV of a sequence that is not finished yet, or that is kept under a lease; it is free after that."""
        if said.get("engine_id") not in (None, self.engine_id):
            return {"error": "engine id mismatch"}
        key = str(said.get("key"))
        lease = self.leases.by_key(key)
        if lease is not None:
            contents = self._contents(
                lease.blocks[: -(-lease.tokens // self._options.block_size)], lease.tokens
            )
            self.leases.free(lease.name)
            return contents
        future: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._waiters[key] = future
        try:
            return await future
        finally:
            with suppress(KeyError):
                if self._waiters[key] is future:
                    del self._waiters[key]

    def _contents(self, blocks: list[int], tokens: int) -> Said:
        held = [self._pool.content(int(b)) for b in blocks]
        return {
            "contents": "".join((c.before + c.digest).hex() for c in held),
            "block_size": self._options.block_size,
            "tokens": tokens,
        }
