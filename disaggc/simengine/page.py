"""The metrics page and the state page of the double: gauges as they are now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from disaggc.simengine.metrics import exposition
from disaggc.simengine.options import Options
from disaggc.simengine.scheduler import Scheduler

if TYPE_CHECKING:
    from disaggc.simengine.exchange import KvExchange

_SLEEP = ("awake", "weights_offloaded", "discard_all")


def metrics_page(options: Options, scheduler: Scheduler, exchange: KvExchange | None) -> str:
    """The text of /metrics."""
    waiting = len(scheduler.waiting) + len(scheduler.ready) + len(scheduler.fetching)
    deferred = len(scheduler.fetching) + len(scheduler.ready)
    gauges: dict[tuple[str, str, str], float] = {
        ("num_requests_running", "", ""): scheduler.running,
        ("num_requests_waiting", "", ""): waiting,
        ("num_requests_waiting_by_reason", "reason", "capacity"): len(scheduler.waiting),
        ("num_requests_waiting_by_reason", "reason", "deferred"): deferred,
    }
    connector = options.connector
    if exchange is not None and connector is not None and connector.role != "kv_producer":
        moving = exchange.in_progress
        stages = {
            "waiting_to_start": len(scheduler.fetching) - moving,
            "in_progress": moving,
            "completed_waiting": len(scheduler.ready),
        }
        gauges |= {("num_requests_kv_fetch_by_stage", "stage", stage): n for stage, n in stages.items()}
    gauges |= {("engine_sleep_state", "sleep_state", state): float(state == "awake") for state in _SLEEP}
    gauges["kv_cache_usage_perc", "", ""] = scheduler.pool.used / scheduler.pool.count
    cache = {
        "block_size": str(options.block_size),
        "cache_dtype": options.kv_cache_dtype,
        "enable_prefix_caching": str(options.caching),
        "effective_attention_block_size": str(options.block_size),
        "kv_cache_size_tokens": str(scheduler.pool.count * options.block_size),
        "num_gpu_blocks": str(scheduler.pool.count),
        "num_gpu_blocks_override": "None",
        "sliding_window": "None",
    }
    return exposition(scheduler.counters, options.served[0], gauges, cache=cache)


def state_page(options: Options, scheduler: Scheduler, exchange: KvExchange | None) -> dict[str, Any]:
    """What only a double can tell: pinned blocks, and blocks that nobody owns."""
    pinned = exchange.supply.leases.blocks if exchange is not None else 0
    owned = {block for s in scheduler.everything() for block in s.blocks}
    leased = exchange.supply.leases.owned if exchange is not None else set()
    return {
        "pid": os.getpid(),
        "model": options.model,
        "running": scheduler.running,
        "waiting": len(scheduler.waiting),
        "fetching": len(scheduler.fetching),
        "ready": len(scheduler.ready),
        "leases": len(exchange.supply.leases) if exchange is not None else 0,
        "pinned_blocks": pinned,
        "used_blocks": scheduler.pool.used,
        "leaked_blocks": scheduler.pool.used - len(owned | leased),
        "total_blocks": scheduler.pool.count,
        "late_s": scheduler.late_s,
        "lost_s": scheduler.lost_s,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else None,
        "ignored_flags": list(options.ignored),
    }
