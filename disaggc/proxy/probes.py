"""Watching the engines: health, and load from their metrics.

Writes what it finds to the board's common region, where workers read it. Uses its own client, never the hot path.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp

from disaggc.proxy.board import Shared
from disaggc.proxy.canary import engine_url
from disaggc.proxy.engine_session import engine_session
from disaggc.routing.roles import seats
from disaggc.routing.table import ReplicaEntry, ReplicaState, RoutingTable

if TYPE_CHECKING:
    from disaggc.proxy.control import Control

_LOG = logging.getLogger(__name__)
_GAUGE = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc)(?:\{[^}]*\})? (\S+)", re.MULTILINE
)
_CELLS = {
    "num_requests_running": Shared.RUNNING,
    "num_requests_waiting": Shared.WAITING,
    "kv_cache_usage_perc": Shared.KV_USAGE,
}


@dataclass(slots=True)
class Standing:
    """What the probes think of one replica."""

    bad: int = 0
    good: int = 0
    out: bool = False
    reason: str = ""


def read_load(metrics: str) -> dict[int, float]:
    """Load gauges in an engine's metrics text, summed over its data-parallel engines (usage: the fullest)."""
    load = {Shared.RUNNING: 0.0, Shared.WAITING: 0.0, Shared.KV_USAGE: 0.0}
    for name, text in _GAUGE.findall(metrics):
        cell = _CELLS[name]
        with suppress(ValueError):
            value = float(text)
            if not 0.0 <= value < math.inf:
                continue  # NaN too: no load, and it would decide every choice
            load[cell] = max(load[cell], value) if cell is Shared.KV_USAGE else load[cell] + value
    return load


class Probes:
    """The watch over all replicas of the table in effect."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.standings: dict[str, Standing] = {}

    def healthy(self, address: str) -> bool:
        """Whether the probes let a replica serve."""
        standing = self.standings.get(address)
        return standing is None or not standing.out

    async def run(self) -> None:
        """Probe every replica each interval."""
        while True:
            table = self._control.table
            try:
                await self._watch(table)
            except Exception:  # noqa: BLE001 - the watch must not end
                _LOG.exception("the probes met a bug, and go on")
                await asyncio.sleep(table.health.interval_s)

    async def _watch(self, table: RoutingTable) -> None:
        """As long as this table is in effect."""
        every = seats(table)
        here = {seat.entry.address for seat in every}
        self.standings = {address: known for address, known in self.standings.items() if address in here}
        async with engine_session(table) as session:
            while table is self._control.table:
                await asyncio.gather(*(self._probe(session, seat.entry) for seat in every))
                await asyncio.sleep(table.health.interval_s)

    async def _probe(self, session: aiohttp.ClientSession, entry: ReplicaEntry) -> None:
        slot = self._control.slots.get(entry.address)
        if slot is None:
            return
        board, health = self._control.board, self._control.table.health
        standing, late = self.standings.setdefault(entry.address, Standing()), False
        try:
            async with asyncio.timeout(health.timeout_s):
                async with session.get(f"{engine_url(self._control.table, entry)}/health") as answer:
                    good = answer.status == 200
                    reason = "" if good else f"health answered {answer.status}"
                async with session.get(f"{engine_url(self._control.table, entry)}/metrics") as answer:
                    if answer.status == 200:
                        for cell, value in read_load(await answer.text(errors="replace")).items():
                            board.set_shared(slot, cell, value)
                        board.set_shared(slot, Shared.SEEN_AT, time.time())
        except (TimeoutError, aiohttp.ClientError, OSError) as exc:
            good, reason, late = False, type(exc).__name__, isinstance(exc, TimeoutError)
        except Exception as exc:  # noqa: BLE001 - whatever an engine sends must not end the watch over the others
            _LOG.exception("%s is probed in vain", entry.address)
            good, reason = False, type(exc).__name__
        standing.good, standing.bad = (standing.good + 1, 0) if good else (0, standing.bad + 1)
        standing.reason = reason
        if not standing.out and standing.bad >= health.eject_after and not (late and self._last(entry)):
            standing.out = True
            _LOG.warning("%s is out: %s", entry.address, reason)
        elif standing.out and standing.good >= health.readmit_after:
            standing.out = False
            _LOG.info("%s is back", entry.address)
            self._control.forget(entry.address)
        board.set_shared(slot, Shared.HEALTHY, -1.0 if standing.out else 1.0)

    def _last(self, entry: ReplicaEntry) -> bool:
        """Whether nobody else could do what it does: slow is then better than nothing, and circuits see to the dead."""
        every = seats(self._control.table)
        roles = {seat.role for seat in every if seat.entry.address == entry.address}
        return not any(
            seat.role in roles
            and seat.entry.cohort == entry.cohort
            and seat.entry.state is ReplicaState.ACTIVE
            and seat.entry.address != entry.address
            and self.healthy(seat.entry.address)
            for seat in every
        )
