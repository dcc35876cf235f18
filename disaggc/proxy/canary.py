"""One canary: a small request over one prefill-decode pair, and what it says of the pair.

It asks what no answer of a client shows: whether KV moved at all, and whether decode continued the right text. Both end
in a 200 when they go wrong. Uses a client of its own, never the hot path.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import aiohttp

from disaggc.proxy.dialects import handover, params_fault, protocol_of
from disaggc.routing.table import ReplicaEntry, RoutingTable

PERIOD = 16
"""Words after which a canary's prompt repeats: a model continues a repetition surely, whatever its last bits are."""
GENERATED = 8
"""Tokens that are compared."""
DEADLINE_S = 60.0
_HITS = re.compile(r"^vllm:external_prefix_cache_hits_total(?:\{[^}]*\})? (\S+)", re.MULTILINE)
_BUSY = (429, 503)
_BROKEN = ("abort", "error")


Reply = Coroutine[Any, Any, dict[str, Any]]


class Verdict(StrEnum):
    """What a canary says of its pair."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """Busy, late or gone: health probes and circuits look after that."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and its reason; `ok` where there is nothing to say."""

    verdict: Verdict
    said: str


OK = Finding(Verdict.GOOD, "ok")


class _EndedError(Exception):
    """The canary ends with this finding."""

    def __init__(self, verdict: Verdict, said: str) -> None:
        super().__init__(said)
        self.finding = Finding(verdict, said)


def engine_url(table: RoutingTable, entry: ReplicaEntry) -> str:
    """Where an engine answers."""
    host = f"[{entry.host.strip('[]')}]" if ":" in entry.host else entry.host
    return f"{'https' if table.engine_tls else 'http'}://{host}:{entry.port}"


@dataclass(frozen=True, slots=True)
class Canary:
    """Canaries of one table over one session."""

    session: aiohttp.ClientSession
    table: RoutingTable

    async def over(self, prefill: ReplicaEntry, decode: ReplicaEntry) -> Finding:
        """Send one; bad only for what the pair, and not load or absence, is to blame for."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._send(prefill, decode)
        except _EndedError as ended:
            return ended.finding
        except (TimeoutError, aiohttp.ClientError, OSError) as exc:
            return Finding(Verdict.UNKNOWN, f"failed: {type(exc).__name__}")
        return OK

    async def _send(self, prefill: ReplicaEntry, decode: ReplicaEntry) -> None:
        ask = self._ask()
        before = await self._hits(decode)
        handed = await self._pair(ask, prefill, decode)
        after = await self._hits(decode)
        if before is not None and after is not None and after <= before:
            raise _EndedError(Verdict.BAD, "no KV moved: decode prefilled alone")
        alone = await self._post(prefill, ask, side="prefill alone")
        if _text(handed) != _text(alone):
            raise _EndedError(Verdict.BAD, "decode continues another text than prefill: its KV is wrong")

    def _ask(self) -> dict[str, Any]:
        """A prompt nobody has cached, of more than two blocks, whose continuation is certain."""
        words = [secrets.token_hex(2) for _ in range(PERIOD)]
        length = 2 * self.table.block_size + PERIOD + PERIOD // 2
        prompt = " ".join(words[i % PERIOD] for i in range(length))
        return {
            "model": self.table.models[0],
            "prompt": prompt,
            "max_tokens": GENERATED,
            "temperature": 0,
            "ignore_eos": True,
        }

    async def _pair(
        self, ask: Mapping[str, Any], prefill: ReplicaEntry, decode: ReplicaEntry
    ) -> dict[str, Any]:
        """Decode's answer after prefill's, or beside it, as the dialect wants."""
        protocol = protocol_of(self.table.dialect)
        hand = handover(protocol, f"canary-{secrets.token_hex(8)}", prefill, decode=decode)
        request = protocol.engine_request_id(hand)
        first = {**ask, "max_tokens": 1, "kv_transfer_params": dict(protocol.prefill_params(hand))}
        lead = self._post(prefill, first, side="prefill", request=request)
        if protocol.concurrent:
            params = dict(protocol.decode_params(hand)) if protocol.decode_params else {}
            follow = self._post(decode, {**ask, "kv_transfer_params": params}, side="decode", request=request)
            return await _both(lead, follow)
        handed = (await lead).get("kv_transfer_params") or {}
        fault = params_fault(handed, self.table.dialect)
        if fault is not None:
            raise _EndedError(Verdict.BAD, fault)
        return await self._post(decode, {**ask, "kv_transfer_params": handed}, side="decode", request=request)

    async def _post(
        self, entry: ReplicaEntry, body: Mapping[str, Any], *, side: str, request: str = ""
    ) -> dict[str, Any]:
        headers = {"X-Request-Id": request} if request else {}
        if request and protocol_of(self.table.dialect).rank_headers and entry.kv is not None:
            headers["X-data-parallel-rank"] = str(entry.kv.dp_rank)
        url = f"{engine_url(self.table, entry)}/v1/completions"
        async with self.session.post(url, json=dict(body), headers=headers) as answer:
            if answer.status != 200:
                verdict = Verdict.UNKNOWN if answer.status in _BUSY else Verdict.BAD
                raise _EndedError(verdict, f"{side} answered {answer.status}")
            try:
                said = await answer.json(content_type=None)
            except ValueError:
                raise _EndedError(Verdict.BAD, f"{side} answered 200 without JSON") from None
        if not isinstance(said, dict) or said.get("error") or not said.get("choices"):
            raise _EndedError(Verdict.BAD, f"{side} answered 200 with an error")
        if said["choices"][0].get("finish_reason") in _BROKEN:
            raise _EndedError(Verdict.BAD, f"{side} broke its answer off")
        return said

    async def _hits(self, entry: ReplicaEntry) -> float | None:
        """Tokens that came from elsewhere so far; clients' traffic counts too, so it can hide a miss, not make one."""
        async with self.session.get(f"{engine_url(self.table, entry)}/metrics") as answer:
            found = _HITS.findall(await answer.text())
        return sum(map(float, found)) if found else None


async def _both(lead: Reply, follow: Reply) -> dict[str, Any]:
    """What the second says; where one fails the other, which would wait for it, ends too."""
    legs = [asyncio.ensure_future(leg) for leg in (lead, follow)]
    try:
        return (await asyncio.gather(*legs))[1]
    finally:
        for leg in legs:
            leg.cancel()


def _text(answer: Mapping[str, Any]) -> str:
    return str(answer["choices"][0].get("text", ""))
