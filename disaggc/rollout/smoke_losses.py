"""KV that was lost during the test, by the engines' own counters: leases that ended unread, transfers that failed.

A read after a lease's end takes what the blocks hold by then: wrong tokens with a 200, which no answer shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from disaggc.rollout.smoke_calls import Caller, CallError
from disaggc.rollout.smoke_metrics import Metrics
from disaggc.rollout.smoke_model import Finding, Subject, judged, skipped
from disaggc.rollout.smoke_use import grown

LOSSES: Mapping[str, str] = {
    "nixl_num_kv_expired_reqs": "leases ended before decode had read their KV",
    "nixl_num_notifications_after_expiry": "reads of KV whose lease was over, maybe another prompt's by then",
    "nixl_num_failed_transfers": "KV transfers failed",
    "nixl_num_failed_notifications": "notices to prefill that its KV is read were lost",
    "mooncake_num_kv_expired_reqs": "requests ended before decode had their KV",
    "mooncake_num_failed_transfers": "KV transfers failed",
    "mooncake_num_failed_recvs": "KV was not received",
    "corrupted_requests": "requests had NaN in their logits",
}
"""Counters of vLLM 0.33 that stand still where KV moves as it should, and what one more of each is."""

Seen = Mapping[str, Metrics | CallError]


async def scraped(subject: Subject, caller: Caller) -> Seen:
    """Every engine's page, or why there is none, by address."""

    async def one(url: str) -> Metrics | CallError:
        try:
            return await caller.metrics(url)
        except CallError as problem:
            return problem

    pages = await asyncio.gather(*(one(engine.url) for engine in subject.engines))
    return {engine.address: page for engine, page in zip(subject.engines, pages, strict=True)}


def lost(before: Seen, after: Seen) -> list[Finding]:
    """For each engine, whether it counts any loss more than when the test began."""
    return [_lost(address, page, after[address]) for address, page in before.items()]


def _lost(address: str, before: Metrics | CallError, after: Metrics | CallError) -> Finding:
    if isinstance(before, CallError) or isinstance(after, CallError):
        problem = before if isinstance(before, CallError) else after
        return judged("kv-losses", address, str(problem), ok=False)
    totals = {name: f"vllm:{name}_total" for name in LOSSES}
    if not any(total in after.totals for name, total in totals.items() if name != "corrupted_requests"):
        return skipped("kv-losses", address, "the engine counts no expired leases and no failed transfers")
    delta = grown(before, after)
    more = {name: delta.get(total, 0.0) for name, total in totals.items()}
    found = {name: count for name, count in more.items() if count > 0}
    if not found:
        return judged("kv-losses", address, "no lease expired and no transfer failed meanwhile", ok=True)
    text = "; ".join(f"{count:.0f} {LOSSES[name]} (vllm:{name})" for name, count in found.items())
    return judged("kv-losses", address, f"since the test began: {text}", ok=False, figures=found)
