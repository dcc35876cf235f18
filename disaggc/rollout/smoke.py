"""The smoke test of one running service: which checks run, in which order, and what makes the later ones moot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from disaggc.rollout.smoke_calls import Caller
from disaggc.rollout.smoke_model import Finding, Pair, Subject
from disaggc.rollout.smoke_pairs import pair, released
from disaggc.rollout.smoke_service import cancelled, kv_blocks, reachable, remote_share


async def smoke(subject: Subject) -> AsyncIterator[Finding]:
    """Findings as they come. Pairs are asked directly by the NIXL pull protocol, then the proxy is."""
    async with Caller(subject.plan.model.served_name, key=subject.key, timeout_s=subject.timeout_s) as caller:
        there = await reachable(subject, caller)
        for finding in there:
            yield finding
        if any(finding.state == "fail" for finding in there):
            return
        for finding in await kv_blocks(subject, caller):
            yield finding
        connector = subject.plan.connector
        if connector is None:
            return
        if connector.type == "nixl":
            for together in _rounds(subject.pairs()):
                for found in await asyncio.gather(*(pair(subject, caller, both) for both in together)):
                    for finding in found:
                        yield finding
            for both in _one_each(subject.pairs()):
                yield await released(subject, caller, both)
        else:
            text = (
                f"engines are asked directly by NIXL pull only; {connector.type} is checked through the proxy"
            )
            yield Finding("kv-moves", subject.plan.name, "skip", text)
        yield await remote_share(subject, caller)
        yield await cancelled(subject, caller)


def _rounds(pairs: tuple[Pair, ...]) -> list[list[Pair]]:
    """The pairs in rounds in which every engine takes part once at most: counters then belong to one pair."""
    rounds: list[list[Pair]] = []
    for prefill, decode in pairs:
        for together in rounds:
            busy = {engine.address for both in together for engine in both}
            if not busy & {prefill.address, decode.address}:
                together.append((prefill, decode))
                break
        else:
            rounds.append([(prefill, decode)])
    return rounds


def _one_each(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    """The first pair of every prefill engine."""
    seen: dict[str, Pair] = {}
    for prefill, decode in pairs:
        seen.setdefault(prefill.address, (prefill, decode))
    return tuple(seen.values())
