"""Both sides of KV transfer of one engine behind one name; the role is decided per request, as in vLLM with NIXL."""

from __future__ import annotations

import asyncio
from typing import Any

from disaggc.simengine.bootstrap import tell
from disaggc.simengine.demand import Demand
from disaggc.simengine.http import Call, Connection
from disaggc.simengine.metrics import Counters
from disaggc.simengine.options import Options
from disaggc.simengine.scheduler import Scheduler
from disaggc.simengine.sequence import Sequence
from disaggc.simengine.supply import Supply


class KvExchange:
    """What an engine with a KV connector can do more than one without."""

    def __init__(self, options: Options, scheduler: Scheduler, counters: Counters) -> None:
        self.supply = Supply(options, scheduler.pool, counters)
        self._demand = Demand(options, counters, scheduler.arrived)
        self._options = options
        self.dialect = self.supply.dialect
        self._bootstrap: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        counters.with_transfers("nixl" if self.dialect.startswith("nixl") else self.dialect)
        scheduler.exchange = self

    async def listen(self) -> None:
        """Open the side channel, and the bootstrap server where the dialect has one."""
        await self.supply.listen()
        connector = self._options.connector
        if self.dialect == "mooncake" and connector is not None and connector.role != "kv_consumer":
            port = int(self._options.number("VLLM_MOONCAKE_BOOTSTRAP_PORT", 8998))
            loop = asyncio.get_running_loop()
            self._bootstrap = await loop.create_server(
                lambda: Connection(self._query, self._connections), self._options.host, port
            )

    def _query(self, connection: Connection, call: Call) -> None:
        supply = self.supply
        host = "127.0.0.1" if supply.host == "0.0.0.0" else supply.host  # noqa: S104 - only compared
        tell(connection, call, engine_id=supply.engine_id, worker=f"{host}:{supply.port}")

    def tasks(self) -> list[asyncio.Task[None]]:
        """What runs as long as the engine lives."""
        loop = asyncio.get_running_loop()
        return [loop.create_task(self.supply.reap()), loop.create_task(self._demand.beat())]

    def expect(self, sequence: Sequence) -> None:
        """A sequence whose KV is elsewhere is here."""
        self._demand.expect(sequence)

    def fetch(self, sequence: Sequence) -> None:
        """Start its transfer."""
        self._demand.fetch(sequence)

    def cancel(self, sequence: Sequence) -> None:
        """It is gone."""
        self._demand.cancel(sequence)

    def keep(self, sequence: Sequence, reason: str) -> bool:
        """Whether its blocks stay for decode."""
        return self.supply.keep(sequence, reason)

    def reject(self, params: dict[str, Any]) -> None:
        """A request that will not be served: prefill may free its KV."""
        self._demand.reject(params)

    @property
    def in_progress(self) -> int:
        """Transfers whose bytes are moving."""
        return self._demand.in_progress

    async def close(self) -> None:
        """End every connection."""
        if self._bootstrap is not None:
            self._bootstrap.close()
        await self._demand.close()
        self.supply.close()
