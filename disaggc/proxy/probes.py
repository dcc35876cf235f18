"""Watching the engines: health, load from their metrics, and canary requests over prefill-decode pairs.

Writes what it finds to the board's common region, where workers read it. Uses its own client, never the hot path.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from disaggc.ir.plan import Role
from disaggc.proxy.board import Shared
from disaggc.proxy.dialects import params_fault
from disaggc.proxy.service import SecretError, read_secret
from disaggc.routing.roles import seats
from disaggc.routing.table import Dialect, ReplicaEntry, ReplicaState

if TYPE_CHECKING:
    from disaggc.proxy.control import Control

_LOG = logging.getLogger(__name__)
_GAUGE = re.compile(
    r"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc)(?:\{[^}]*\})? (\S+)", re.MULTILINE
)
_HITS = re.compile(r"^vllm:external_prefix_cache_hits_total(?:\{[^}]*\})? (\S+)", re.MULTILINE)
_CELLS = {
    "num_requests_running": Shared.RUNNING,
    "num_requests_waiting": Shared.WAITING,
    "kv_cache_usage_perc": Shared.KV_USAGE,
}
CANARY_S = 60.0


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
            load[cell] = max(load[cell], value) if cell is Shared.KV_USAGE else load[cell] + value
    return load


class Probes:
    """The watch over all replicas of the table in effect."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.standings: dict[str, Standing] = {}
        self.canaries: dict[tuple[str, str], str] = {}

    async def run(self) -> None:
        """Probe every replica each interval, canary pairs each canary interval."""
        headers = {}
        with suppress(SecretError):
            key = self._control.table.api_key
            if key is not None:
                headers["Authorization"] = f"Bearer {read_secret(key).decode('latin-1')}"
        async with aiohttp.ClientSession(
            headers=headers, connector=aiohttp.TCPConnector(force_close=True)
        ) as session:
            next_canary = time.monotonic()
            while True:
                table = self._control.table
                entries = [seat.entry for seat in seats(table)]
                await asyncio.gather(*(self._probe(session, entry) for entry in entries))
                if table.health.canary_s is not None and time.monotonic() >= next_canary:
                    next_canary = time.monotonic() + table.health.canary_s
                    await self._canaries(session)
                await asyncio.sleep(table.health.interval_s)

    async def _probe(self, session: aiohttp.ClientSession, entry: ReplicaEntry) -> None:
        slot = self._control.slots.get(entry.address)
        if slot is None:
            return
        board, health = self._control.board, self._control.table.health
        standing = self.standings.setdefault(entry.address, Standing())
        try:
            async with asyncio.timeout(health.timeout_s):
                async with session.get(f"{self._url(entry)}/health") as answer:
                    good = answer.status == 200
                    reason = "" if good else f"health answered {answer.status}"
                async with session.get(f"{self._url(entry)}/metrics") as answer:
                    if answer.status == 200:
                        for cell, value in read_load(await answer.text()).items():
                            board.set_shared(slot, cell, value)
                        board.set_shared(slot, Shared.SEEN_AT, time.time())
        except (TimeoutError, aiohttp.ClientError, OSError) as exc:
            good, reason = False, type(exc).__name__
        standing.good, standing.bad = (standing.good + 1, 0) if good else (0, standing.bad + 1)
        standing.reason = reason
        if not standing.out and standing.bad >= health.eject_after:
            standing.out = True
            _LOG.warning("%s is out: %s", entry.address, reason)
        elif standing.out and standing.good >= health.readmit_after:
            standing.out = False
            _LOG.info("%s is back", entry.address)
        board.set_shared(slot, Shared.HEALTHY, -1.0 if standing.out else 1.0)

    def _url(self, entry: ReplicaEntry) -> str:
        scheme = "https" if self._control.table.engine_tls else "http"
        host = f"[{entry.host.strip('[]')}]" if ":" in entry.host else entry.host
        return f"{scheme}://{host}:{entry.port}"

    async def _canaries(self, session: aiohttp.ClientSession) -> None:
        """One small request over every prefill and every decode, paired in turn; only for dialects that answer."""
        table = self._control.table
        if table.dialect is not Dialect.NIXL:
            return
        active = [s for s in seats(table) if s.entry.state is ReplicaState.ACTIVE]
        prefills = [s.entry for s in active if s.role is Role.PREFILL]
        decodes = [s.entry for s in active if s.role is Role.DECODE]
        self.canaries = {
            pair: said for pair, said in self.canaries.items() if {*pair} <= set(self._control.slots)
        }
        for prefill, decode in pairs_in_turn(prefills, decodes):
            try:
                async with asyncio.timeout(CANARY_S):
                    said = await self._canary(session, prefill, decode)
            except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as exc:
                said = f"failed: {type(exc).__name__}"
            self.canaries[prefill.address, decode.address] = said
            if said != "ok":
                _LOG.warning("canary %s to %s: %s", prefill.address, decode.address, said)

    async def _canary(
        self, session: aiohttp.ClientSession, prefill: ReplicaEntry, decode: ReplicaEntry
    ) -> str:
        table = self._control.table
        words = " ".join(secrets.token_hex(2) for _ in range(table.block_size * 2))
        ask: dict[str, Any] = {"model": table.models[0], "prompt": words, "max_tokens": 1, "temperature": 0}
        before = await self._hits(session, decode)
        first = {**ask, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
        async with session.post(f"{self._url(prefill)}/v1/completions", json=first) as answer:
            if answer.status != 200:
                return f"prefill answered {answer.status}"
            params = (await answer.json()).get("kv_transfer_params")
        fault = params_fault(params, table.dialect)
        if fault is not None:
            return fault
        async with session.post(
            f"{self._url(decode)}/v1/completions", json={**ask, "kv_transfer_params": params}
        ) as answer:
            if answer.status != 200:
                return f"decode answered {answer.status}"
        after = await self._hits(session, decode)
        if before is None or after is None:
            return "ok"
        return "ok" if after > before else "decode prefilled alone"

    async def _hits(self, session: aiohttp.ClientSession, entry: ReplicaEntry) -> float | None:
        async with session.get(f"{self._url(entry)}/metrics") as answer:
            found = _HITS.findall(await answer.text())
        return sum(map(float, found)) if found else None


def pairs_in_turn(
    prefills: list[ReplicaEntry], decodes: list[ReplicaEntry]
) -> list[tuple[ReplicaEntry, ReplicaEntry]]:
    """Pairs of one cohort such that every replica that has a partner is in at least one."""
    pairs = []
    for cohort in sorted({entry.cohort for entry in prefills} & {entry.cohort for entry in decodes}):
        firsts = [e for e in prefills if e.cohort == cohort]
        seconds = [e for e in decodes if e.cohort == cohort]
        count = max(len(firsts), len(seconds))
        pairs += list(
            itertools.islice(zip(itertools.cycle(firsts), itertools.cycle(seconds), strict=False), count)
        )
    return pairs
