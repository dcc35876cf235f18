"""Memory of every pool, sized again from the facts. Trusts no byte of the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator

from disaggc.diagnostics import Diagnostic, error
from disaggc.ir.plan import Pool, ServicePlan
from disaggc.perf.memory import Fit, NoFit
from disaggc.perf.models import Models
from disaggc.resolve.model import ResolvedService

_NOISE = 1e-5
"""Plans keep six significant digits."""


def broken_sizes(planned: ServicePlan, service: ResolvedService, models: Models) -> Iterator[Diagnostic]:
    """DGC343 where a pool does not fit, or where the plan counts with other sizes than the facts give."""
    path = ("services", service.name)
    for pool in planned.pools:
        group = next((g for g in models.resolved.groups if g.name == pool.group), None)
        if group is None:
            yield error(
                "DGC343",
                f"{pool.address} stands on group {pool.group}, which the spec does not have",
                path,
            )
            continue
        sized = models.memory(service, group, pool.role, shape=pool.shape)
        if isinstance(sized, NoFit):
            yield error("DGC343", f"{pool.address} does not fit: {sized}", path)
            continue
        for text in _differences(pool, sized):
            yield error("DGC343", f"{pool.address} {text}", path)


def _differences(pool: Pool, sized: Fit) -> Iterator[str]:
    memory = pool.memory
    exact = (
        ("memory per accelerator", memory.total, sized.total_bytes),
        ("usable memory", memory.usable, sized.usable_bytes),
        ("weights", memory.weights, sized.weights_bytes),
        ("KV bytes per token", memory.kv_bytes_per_token, sized.kv_bytes_per_token),
        ("low end of buffers", memory.overhead_low, sized.overhead_low_bytes),
        ("high end of buffers", memory.overhead_high, sized.overhead_high_bytes),
    )
    for name, said, found in exact:
        if not math.isclose(said, found, rel_tol=_NOISE):
            yield f"counts with {said:.6g} bytes of {name}, the facts give {found:.6g}"
    for name, said, found in (
        ("tokens of KV", memory.kv_tokens, sized.kv_tokens_low),
        ("tokens of KV at best", memory.kv_tokens_high, sized.kv_tokens_high),
        ("sequences", memory.sequences, sized.max_num_seqs),
    ):
        if said > found:
            yield f"counts with {said} {name}, the facts give {found}"
