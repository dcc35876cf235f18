"""A sketch: counts per kind of replica, before anything is predicted or placed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from disaggc.ir.plan import Role
from disaggc.perf.layout import Layout, LayoutMode, PoolLayout
from disaggc.solve.packing import ROLE_ORDER
from disaggc.solve.rates import Kind, ReplicaRates

Sketch = tuple[tuple[Kind, int], ...]
"""(kind, replicas), canonical order."""


def canonical(counts: Mapping[Kind, int]) -> Sketch:
    """Counts in canonical order, empty pools left out."""
    return tuple(sorted(((k, n) for k, n in counts.items() if n), key=lambda item: kind_order(item[0])))


def kind_order(kind: Kind) -> tuple[int, str, int, int, int, int, int]:
    """Role, group, shape."""
    role, group, s = kind
    return (ROLE_ORDER[role], group, s.tp, s.pp, s.dp, s.ep, s.dcp)


def layouts_of(rates: ReplicaRates, sketch: Sketch) -> tuple[Layout, ...]:
    """The layouts perf predicts: with every sequence memory allows, and where bounds ask for fewer, with those."""
    free = tuple(PoolLayout(k[0], rates.group(k), k[2], n) for k, n in sketch)
    held = tuple(replace(pool, max_seqs=rates.pinned(k)) for pool, (k, _) in zip(free, sketch, strict=True))
    return tuple(dict.fromkeys(Layout(mode_of(rates, sketch), pools) for pools in (held, free)))


def mode_of(rates: ReplicaRates, sketch: Sketch) -> LayoutMode:
    """How a sketch serves."""
    if any(kind[0] is Role.COLOCATED for kind, _ in sketch):
        return "colocated"
    return "flexible" if rates.service.mode == "flexible" else "disaggregated"


def footprint(rates: ReplicaRates, sketch: Sketch) -> dict[str, int]:
    """Accelerators it denies to others, per group; more than one node means whole nodes."""
    taken: dict[str, int] = {}
    for kind, count in sketch:
        per_node, size = rates.group(kind).per_node, kind[2].accelerators
        whole = size if size <= per_node else -(-size // per_node) * per_node
        taken[kind[1]] = taken.get(kind[1], 0) + count * whole
    return taken


def nodes_of(rates: ReplicaRates, sketch: Sketch) -> int:
    """Whole nodes it takes."""
    groups = {kind[1]: rates.group(kind).per_node for kind, _ in sketch}
    return sum(-(-taken // groups[name]) for name, taken in footprint(rates, sketch).items())
