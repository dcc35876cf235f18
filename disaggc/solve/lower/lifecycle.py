"""How long things last: lease, drain, grace, start. All inequalities between them are decided here, once."""

from __future__ import annotations

import math
from typing import Literal

from disaggc.ir.front import HANDOFF_SHARE, LEASE_CEILING_S
from disaggc.ir.plan import Role, Timings

PRE_STOP_S = 15
"""Routing needs a few probe periods to move away before SIGTERM (llm-d and KServe use 15 s)."""
MARGIN_S = 15
HANDSHAKE_S = 5
"""A prefill-decode pair's first handshake takes about 5 s (NIXL)."""
LEASE_FLOOR_S = 30
"""vLLM's own default kv_lease_duration."""
DRAIN_CEILING_S = 7200
KEEP_ALIVE_S = 120
PROXY_IDLE_S = 90
"""Pooled proxy connections idle for less than the engines keep them, else random 502s."""
LOAD_BYTES_PER_S = 0.5e9
"""A slow shared file system; model loading is planned for it, so that a start is not killed half-way."""
COMPILE_S = 600
"""torch.compile and graph capture of the largest models."""

_WORKER_EXIT_S = {"nvidia": 5, "cpu": 5, "amd": 15}
"""VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS: 5, on ROCm 15."""


def lease(
    asked: float | Literal["auto"], ttft_p99_s: float, transfer_s: float, *, handoff: float | None = None
) -> int:
    """Seconds that prefill keeps KV nobody has fetched: twice the slow path of hop, decode queue and transfer.

    An expired lease that is read later gives wrong tokens with HTTP 200, so the automatic value is generous, and covers
    a handoff deadline that the spec gives.
    """
    if asked != "auto":
        return max(1, math.ceil(asked))
    slow = max(2 * (HANDSHAKE_S + transfer_s + ttft_p99_s), (handoff or 0.0) / HANDOFF_SHARE)
    return min(LEASE_CEILING_S, max(LEASE_FLOOR_S, math.ceil(slow)))


def drain(asked: float | Literal["auto"], e2e_p99_s: float, *, flexible: bool = False) -> int:
    """Seconds a replica may finish its requests: p99 end-to-end latency and a tenth more.

    Of a flexible pool the most there is, whatever is predicted: it stands in the engines' command lines, and another
    ratio, which changes what is predicted, must not restart them. Who has finished ends at once all the same.
    """
    if asked != "auto":
        return max(1, math.ceil(asked))
    if flexible:
        return DRAIN_CEILING_S
    return min(DRAIN_CEILING_S, math.ceil(e2e_p99_s * 1.1) + MARGIN_S)


def timings(
    role: Role, vendor: Literal["nvidia", "amd", "cpu"], *, lease_s: int, drain_s: int, weight_bytes: float
) -> Timings:
    """Lifecycle of one replica; weight_bytes: bytes one node loads.

    Prefill has no request to finish that is longer than its lease, but nothing else waits for KV still to be fetched;
    decode and colocated must finish their generations; a flexible replica must do both.
    """
    match role:
        case Role.PREFILL:
            shutdown = lease_s + MARGIN_S
        case Role.DECODE | Role.COLOCATED:
            shutdown = drain_s
        case Role.FLEXIBLE:
            shutdown = max(lease_s + MARGIN_S, drain_s)
    worker_exit = _WORKER_EXIT_S[vendor]
    return Timings(
        pre_stop_s=PRE_STOP_S,
        shutdown_s=shutdown,
        worker_exit_s=worker_exit,
        grace_s=PRE_STOP_S + shutdown + worker_exit + MARGIN_S,
        startup_s=COMPILE_S + math.ceil(weight_bytes / LOAD_BYTES_PER_S),
    )
