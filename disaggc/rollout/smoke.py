"""The smoke test of one running service: which checks run, in which order, and what cannot be judged when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

from disaggc.rollout.smoke_calls import Caller
from disaggc.rollout.smoke_losses import lost, scraped
from disaggc.rollout.smoke_model import Finding, Pair, Subject, failed, skipped
from disaggc.rollout.smoke_pairs import pair, released
from disaggc.rollout.smoke_service import cancelled, kv_blocks, proxy_reachable, reachable, remote_share
from disaggc.units import counted

UNREACHED = "was not asked: it failed `reachable`"


async def smoke(subject: Subject, said: Callable[[str], None]) -> AsyncIterator[Finding]:
    """Findings as they come. Pairs are asked directly by the NIXL pull protocol, then the proxy is.

    What fails `reachable` is left out of the rest, which is judged without it. said: progress, a line for each stage.
    """
    name = subject.plan.name
    async with Caller(subject.plan.model.served_name, key=subject.key, timeout_s=subject.timeout_s) as caller:
        engines = counted(len(subject.engines), "engine")
        said(f"{name}: asking {engines} and the proxy, at most {subject.timeout_s:.0f} s each")
        there = [*await reachable(subject, caller), await proxy_reachable(subject, caller)]
        for finding in there:
            yield finding
        out = frozenset(finding.subject for finding in there if failed(finding))
        rest = replace(
            subject,
            engines=tuple(engine for engine in subject.engines if engine.address not in out),
            proxy=None if there[-1].subject in out else subject.proxy,
        )
        for finding in await kv_blocks(rest, caller):
            yield finding
        for engine in subject.engines:
            if engine.address in out:
                yield skipped("kv-blocks", engine.address, f"{engine.address} {UNREACHED}")
        before = await scraped(rest, caller)
        if subject.plan.connector is not None:
            async for finding in _pairs(subject, rest, caller, said=said):
                yield finding
        said(f"{name}: asking the proxy")
        async for finding in _through_proxy(rest, caller, missing=there[-1].subject in out):
            yield finding
        if subject.plan.connector is not None:
            for finding in lost(before, await scraped(rest, caller)):
                yield finding


async def _pairs(
    subject: Subject, rest: Subject, caller: Caller, *, said: Callable[[str], None]
) -> AsyncIterator[Finding]:
    """Every pair of the plan; rest: the subject without the engines that did not answer."""
    connector, name = subject.plan.connector, subject.plan.name
    if connector is None or connector.type != "nixl":
        kind = "none" if connector is None else connector.type
        text = f"engines are asked directly by NIXL pull only; {kind} is checked through the proxy"
        yield skipped("kv-moves", name, text)
        return
    asked = rest.pairs()
    rounds = _rounds(asked)
    for number, together in enumerate(rounds, 1):
        said(f"{name}: {len(together)} of {len(asked)} pairs, round {number} of {len(rounds)}")
        for found in await asyncio.gather(*(pair(rest, caller, both) for both in together)):
            for finding in found:
                yield finding
    for prefill, decode in subject.pairs():
        if (prefill, decode) not in asked:
            who = " and ".join(one.address for one in (prefill, decode) if one not in rest.engines)
            yield skipped("kv-moves", f"{prefill.address} -> {decode.address}", f"{who} {UNREACHED}")
    said(f"{name}: cancelling between the legs")
    for both in _one_each(asked):
        yield await released(rest, caller, both)


async def _through_proxy(rest: Subject, caller: Caller, *, missing: bool) -> AsyncIterator[Finding]:
    checks = [("hang-up", cancelled)]
    if rest.plan.connector is not None:
        checks.insert(0, ("remote-prefill", remote_share))
    for check, run in checks:
        if missing:
            yield skipped(check, f"{rest.plan.name}/proxy", f"the proxy {UNREACHED}")
        elif not rest.generating:
            text = "it was not asked: every engine that could answer failed `reachable`"
            yield skipped(check, f"{rest.plan.name}/proxy", text)
        else:
            yield await run(rest, caller)


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


def _one_each(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """The first pair of every prefill engine."""
    seen: dict[str, Pair] = {}
    for prefill, decode in pairs:
        seen.setdefault(prefill.address, (prefill, decode))
    return tuple(seen.values())
