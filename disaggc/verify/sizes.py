"""Memory of every pool, sized again from the facts. Trusts no byte of the plan."""

from __future__ import annotations

import math
from collections.abc import Iterator

from disaggc.diagnostics import Diagnostic, error
from disaggc.ir.plan import Pool, ServicePlan
from disaggc.perf.estimate import Basis
from disaggc.perf.memory import Fit, NoFit
from disaggc.perf.models import Models
from disaggc.perf.overhead import overhead_bytes
from disaggc.perf.sizes import batched_tokens
from disaggc.resolve.model import NodeGroupFacts, ResolvedService

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
        buffers = _buffers(pool, sized, service, group=group)
        for text in (*_differences(pool, sized), *_beyond(pool, sized, buffers)):
            yield error("DGC343", f"{pool.address} {text}", path)


def _buffers(
    pool: Pool, sized: Fit, service: ResolvedService, *, group: NodeGroupFacts
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(least, most) of the low and of the high end of the engine's buffers.

    They grow with the sequences they are sized for. A plan may run fewer than memory allows: where prefill keeps KV
    until it is fetched, and where bounds ask for fewer.
    """
    most = (sized.overhead_low_bytes, sized.overhead_high_bytes)
    if sized.basis is not Basis.PRIOR:
        return (most[0], most[0]), (most[1], most[1])
    batched = batched_tokens(service, group, pool.role)
    least = overhead_bytes(service.model, pool.shape, batched=batched, sequences=pool.memory.sequences)
    return (least[0], most[0]), (least[1], most[1])


def _differences(pool: Pool, sized: Fit) -> Iterator[str]:
    memory = pool.memory
    exact = (
        ("memory per accelerator", memory.total, sized.total_bytes),
        ("usable memory", memory.usable, sized.usable_bytes),
        ("weights", memory.weights, sized.weights_bytes),
        ("KV bytes per token", memory.kv_bytes_per_token, sized.kv_bytes_per_token),
    )
    for name, said, found in exact:
        if not math.isclose(said, found, rel_tol=_NOISE):
            yield f"counts with {said:.6g} bytes of {name}, the facts give {found:.6g}"
    if memory.sequences > sized.max_num_seqs:
        yield f"counts with {memory.sequences} sequences, the facts give {sized.max_num_seqs}"


def _beyond(
    pool: Pool, sized: Fit, buffers: tuple[tuple[float, float], tuple[float, float]]
) -> Iterator[str]:
    """Buffers outside their range, and tokens beyond what the buffers leave."""
    memory = pool.memory
    left = sized.usable_bytes - sized.weights_bytes
    for end, said, (least, most), tokens, of in (
        ("low", memory.overhead_low, buffers[0], memory.kv_tokens_high, "tokens of KV at best"),
        ("high", memory.overhead_high, buffers[1], memory.kv_tokens, "tokens of KV"),
    ):
        if not least * (1 - _NOISE) <= said <= most * (1 + _NOISE):
            between = f"{least:.6g}" if least == most else f"{least:.6g} to {most:.6g}"
            yield f"counts with {said:.6g} bytes of {end} end of buffers, the facts give {between}"
        found = max(0.0, left - said) / sized.kv_bytes_per_token
        if tokens > found * (1 + _NOISE) + 1:
            yield f"counts with {tokens} {of}, the facts give {int(found)}"
