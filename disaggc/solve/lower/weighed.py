"""What else was weighed: alternatives and the margin to the other mode, as the plan tells them."""

from __future__ import annotations

from disaggc.ir.plan import Alternative, Comparison, Ratio, Role
from disaggc.perf.expectation import expectation, plan_number
from disaggc.perf.layout import Layout
from disaggc.solve.solution import RankedLayout, ServiceSolution


def ratio(prefill: int, decode: int) -> Ratio:
    """Replicas or nodes per role."""
    return Ratio(prefill=prefill, decode=decode)


def ratio_of(layout: Layout) -> Ratio | None:
    """Replicas per role; None for colocated."""
    if layout.mode == "colocated":
        return None
    return ratio(layout.replicas(Role.PREFILL), layout.replicas(Role.DECODE))


def _layout_nodes(layout: Layout) -> Ratio | None:
    """Whole nodes a layout that was not placed takes at least, by role."""
    if layout.mode == "colocated":
        return None
    taken = {Role.PREFILL: 0, Role.DECODE: 0}
    for pool in layout.pools:
        taken[pool.role] += -(-pool.replicas * pool.shape.accelerators // pool.group.per_node)
    return ratio(taken[Role.PREFILL], taken[Role.DECODE])


def comparison(found: ServiceSolution) -> Comparison | None:
    """Decided where the range of the margin leaves 1 out."""
    if found.margin is None:
        return None
    margin = plan_number(found.margin.ratio)
    undecided = margin.low <= 1 <= margin.high
    return Comparison(
        margin=margin,
        metric=found.margin.metric,
        verdict="undecided, calibrate" if undecided else "decided",
    )


def alternative(ranked: RankedLayout) -> Alternative:
    """One layout that was weighed."""
    layout = ranked.layout
    return Alternative(
        mode=layout.mode,
        ratio=ratio_of(layout),
        replicas=sum(pool.replicas for pool in layout.pools),
        nodes=_layout_nodes(layout),
        shapes={_pool_key(layout, i): pool.shape for i, pool in enumerate(layout.pools)},
        predicted=expectation(ranked.prediction),
        relative=plan_number(ranked.relative.ratio),
        metric=ranked.relative.metric,
        feasible=ranked.feasible,
    )


def _pool_key(layout: Layout, index: int) -> str:
    """The role, with the node group where a role has several pools."""
    pool = layout.pools[index]
    alone = sum(other.role is pool.role for other in layout.pools) == 1
    return pool.role.value if alone else f"{pool.role.value}-{pool.group.name}-{index}"
