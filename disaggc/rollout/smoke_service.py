"""What a service does as a whole: engines answer and hold their KV, the proxy uses both sides and cleans up."""

from __future__ import annotations

import asyncio

from disaggc.ir.plan import Role
from disaggc.rollout.smoke_calls import Caller, CallError
from disaggc.rollout.smoke_metrics import Metrics
from disaggc.rollout.smoke_model import Finding, Subject, Target, judged, skipped
from disaggc.rollout.smoke_use import RELEASED_S, grown, settles
from disaggc.units import counted, format_count

GENERATED = 8
"""Tokens asked of each answer."""
THROUGH_PROXY = 6
CANCELLED = 4
REMOTE_SHARE = 0.9
"""Least share of prompt tokens that must come from prefill; the last block may be decode's own."""
BLOCK_TOLERANCE = 0.98
"""The engine rounds to whole blocks and ranks."""


async def reachable(subject: Subject, caller: Caller) -> list[Finding]:
    """Every engine answers and serves the model under its name."""
    asked = (_serves(subject, caller, engine.address, url=engine.url) for engine in subject.engines)
    return list(await asyncio.gather(*asked))


async def proxy_reachable(subject: Subject, caller: Caller) -> Finding:
    """The proxy answers, takes the clients' key and serves the model."""
    name = f"{subject.plan.name}/proxy"
    if subject.proxy is None:
        return skipped("reachable", name, "no address of the proxy was given")
    return await _serves(subject, caller, name, url=subject.proxy)


async def _serves(subject: Subject, caller: Caller, address: str, *, url: str) -> Finding:
    try:
        names = await caller.models(url)
    except CallError as problem:
        return judged("reachable", address, str(problem), ok=False)
    name = subject.plan.model.served_name
    if name not in names:
        listed = ", ".join(names) or "nothing"
        return judged("reachable", address, f"it serves {listed}, the plan says {name}", ok=False)
    return judged("reachable", address, f"serves {name}", ok=True)


async def kv_blocks(subject: Subject, caller: Caller) -> list[Finding]:
    """Every engine holds at least the KV the plan counts on."""

    async def one(engine: Target) -> Finding:
        try:
            seen = await caller.metrics(engine.url)
        except CallError as problem:
            return judged("kv-blocks", engine.address, str(problem), ok=False)
        have = kv_tokens(seen)
        want = engine.pool.memory.kv_tokens * engine.pool.shape.dp
        if have is None:
            return skipped("kv-blocks", engine.address, "the engine does not tell its KV blocks")
        figures = {"kv_tokens": have, "planned_kv_tokens": float(want)}
        text = f"holds {format_count(have)} tokens of KV, the plan counts on {format_count(float(want))}"
        return judged("kv-blocks", engine.address, text, ok=have >= BLOCK_TOLERANCE * want, figures=figures)

    return list(await asyncio.gather(*map(one, subject.engines)))


def kv_tokens(seen: Metrics) -> float | None:
    """Tokens of KV of all ranks; None where the engine does not tell."""
    total = 0.0
    for labels in seen.config:
        told = labels.get("kv_cache_size_tokens", "")
        blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
        if told.isdecimal():
            total += int(told)
        elif blocks.isdecimal() and size.isdecimal():
            total += int(blocks) * int(size)
        else:
            return None
    return total or None


async def remote_share(subject: Subject, caller: Caller) -> Finding:
    """Prompts sent to the proxy are prefilled on prefill engines, streamed and not."""
    name, proxy = f"{subject.plan.name}/proxy", subject.proxy
    if proxy is None:
        return skipped("remote-prefill", name, "no address of the proxy was given")
    decodes = subject.that(Role.DECODE)
    try:
        before = [await caller.metrics(engine.url) for engine in decodes]
        for number in range(THROUGH_PROXY):
            prompt = await caller.tokens(decodes[0].url, subject.prompt_tokens)
            if number % 2:
                await caller.stream(proxy, prompt, most=GENERATED)
            else:
                await caller.complete(proxy, prompt, most=GENERATED, guarded=True)
        after = [await caller.metrics(engine.url) for engine in decodes]
    except CallError as problem:
        return judged("remote-prefill", name, str(problem), ok=False)
    deltas = [grown(old, new) for old, new in zip(before, after, strict=True)]
    hits = sum(delta.get("vllm:external_prefix_cache_hits_total", 0.0) for delta in deltas)
    share = hits / (THROUGH_PROXY * subject.prompt_tokens)
    text = f"{share:.0%} of the tokens of {THROUGH_PROXY} prompts of {subject.prompt_tokens} came from prefill engines"
    if share < REMOTE_SHARE:
        text += "; decode engines compute prompts themselves"
    return judged("remote-prefill", name, text, ok=share >= REMOTE_SHARE, figures={"share": share})


async def cancelled(subject: Subject, caller: Caller) -> Finding:
    """Clients that hang up at the proxy leave nothing behind on any engine."""
    name, proxy = f"{subject.plan.name}/proxy", subject.proxy
    if proxy is None:
        return skipped("hang-up", name, "no address of the proxy was given")
    try:
        base = {}
        for engine in subject.engines:
            seen = await caller.metrics(engine.url)
            base[engine.address] = seen["kv_cache_usage_perc"]
            if seen["num_requests_running"]:
                return skipped(
                    "hang-up", name, f"{engine.address} serves others, nobody can say what is left"
                )
        most = max(1, min(512, subject.plan.model.max_model_len - subject.prompt_tokens))
        prompts = [
            await caller.tokens(subject.engines[0].url, subject.prompt_tokens) for _ in range(CANCELLED)
        ]
        for prompt in prompts:
            await caller.break_off(proxy, prompt, most=most)
        free = await settles(caller, subject.engines, base)
    except CallError as problem:
        return judged("hang-up", name, str(problem), ok=False)
    text = (
        f"nothing is left on {counted(len(subject.engines), 'engine')} after {CANCELLED} clients hung up"
        if free
        else f"requests or KV are left on an engine {RELEASED_S:.0f} s after {CANCELLED} clients hung up"
    )
    return judged("hang-up", name, text, ok=free)
