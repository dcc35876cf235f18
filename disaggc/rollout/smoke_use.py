"""How much an engine has in use, before and after: what grew, and whether it is free again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from disaggc.rollout.smoke_calls import Caller
from disaggc.rollout.smoke_metrics import Metrics
from disaggc.rollout.smoke_model import Target

RELEASED_S = 10.0
"""Blocks must be free again after this; the shortest lease is longer."""
POLL_S = 0.25
_IDLE = 1e-9


def grown(before: Metrics, after: Metrics) -> Mapping[str, float]:
    """What every total has gained."""
    return {name: value - before.totals.get(name, 0.0) for name, value in after.totals.items()}


async def settles(caller: Caller, engines: tuple[Target, ...], base: Mapping[str, float]) -> bool:
    """Whether every engine's KV use is back at what it was within RELEASED_S."""
    deadline = time.monotonic() + RELEASED_S
    while True:
        seen = {engine.address: await caller.metrics(engine.url) for engine in engines}
        if all(
            m["kv_cache_usage_perc"] <= base[a] + _IDLE and not m["num_requests_running"]
            for a, m in seen.items()
        ):
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_S)
