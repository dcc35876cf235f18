"""Puts the DeploymentPlan together from the solution: the one place where every part of it meets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from disaggc import __version__
from disaggc.ir.plan import (
    Alternative,
    Comparison,
    DeploymentPlan,
    EngineRelease,
    Expectation,
    ModelRef,
    Node,
    Pool,
    Prediction,
    Provenance,
    ProxyPlan,
    Ratio,
    Role,
    RolloutPolicy,
    ServicePlan,
    SolverReport,
    WatchPolicy,
)
from disaggc.perf.expectation import expectation, plan_number
from disaggc.perf.layout import Layout
from disaggc.perf.models import Models
from disaggc.perf.thresholds import break_even_tokens
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, ResolvedSpec
from disaggc.solve.lower.cohort import cohort
from disaggc.solve.lower.connector import connector_plan
from disaggc.solve.lower.front import proxy_plan, skip_below
from disaggc.solve.lower.lifecycle import drain, lease
from disaggc.solve.lower.links import handoff_s, kv_links
from disaggc.solve.lower.pools import Lifetimes, service_pools
from disaggc.solve.lower.ports import admin_port
from disaggc.solve.solution import RankedLayout, Report, ServiceSolution, Solution

MOST_ALTERNATIVES = 12


def lower(models: Models, solution: Solution) -> DeploymentPlan:
    """The plan of a solution: pure, the same bytes for the same input on any machine (but for solver.wall_s)."""
    resolved = models.resolved
    taken: set[tuple[str, int]] = set()
    services = {service.name: service for service in resolved.services}
    plans = tuple(
        _service(models, services[found.name], found, index=index, taken=taken)
        for index, found in enumerate(sorted(solution.services, key=lambda s: s.name))
    )
    return DeploymentPlan(
        services=plans,
        nodes=tuple(_node(group, i) for group in resolved.groups for i in range(len(group.nodes))),
        fabric=resolved.fabric.type,
        allow_tcp=resolved.spec.cluster.fabric.allow_tcp,
        gid_index=resolved.spec.cluster.fabric.gid_index,
        interface=resolved.spec.cluster.fabric.interface,
        optimize=resolved.spec.optimize,
        rollout=RolloutPolicy(
            strategy=resolved.spec.rollout.strategy,
            drain_s=max(plan.proxy.drain_s for plan in plans),
            state_backend=resolved.spec.state.backend,
        ),
        watch=_watch(resolved),
        provenance=Provenance(
            disaggc=__version__,
            spec=resolved.spec_digest,
            catalog=resolved.catalog_digest,
            calibration=None if resolved.calibration is None else _digest(resolved.calibration.text),
        ),
        solver=_report(solution.report),
    )


def _service(
    models: Models,
    service: ResolvedService,
    found: ServiceSolution,
    *,
    index: int,
    taken: set[tuple[str, int]],
) -> ServicePlan:
    predicted = expectation(found.prediction)
    handoff = handoff_s(models, service, found)
    times = Lifetimes(
        lease_s=lease(service.given.engine.connector.lease, _slowest(predicted, "ttft_ms"), handoff),
        drain_s=drain(models.resolved.spec.rollout.drain_timeout, _slowest(predicted, "e2e_ms")),
        handoff_s=handoff,
    )
    connector = None if found.mode == "colocated" else connector_plan(service, times.lease_s)
    pools = service_pools(models, service, found, connector=connector, times=times)
    grace = max(pool.timings.grace_s for pool in pools)
    return ServicePlan(
        name=service.name,
        mode=found.mode,
        cohort=cohort(models.resolved, service),
        model=_model(service),
        engine=EngineRelease(
            version=service.given.engine.vllm,
            snapshot=service.snapshot.text,
            command=service.given.engine.command,
        ),
        connector=connector,
        pools=pools,
        links=() if connector is None else kv_links(models, service, pools),
        proxy=_proxy(
            models.resolved, service, pools, index=index, taken=taken, drain_s=max(times.drain_s, grace)
        ),
        ratio=_ratio_of(found.layout),
        nodes=_nodes_of(pools),
        flexible_ratio=None if found.flexible_ratio is None else _ratio(*found.flexible_ratio),
        priorities={load.name: load.priority for load in service.classes},
        skip_prefill_below=(
            0 if connector is None else skip_below(service, break_even_tokens(service, found.prediction))
        ),
        predicted=predicted,
        colocated=None if found.colocated is None else expectation(found.colocated),
        comparison=_comparison(found),
        alternatives=tuple(_alternative(ranked) for ranked in found.alternatives[:MOST_ALTERNATIVES]),
        prefill_doubling_rate=found.prefill_doubling_rate,
        because=(f"services.{service.name}",),
    )


def _proxy(
    resolved: ResolvedSpec,
    service: ResolvedService,
    pools: Sequence[Pool],
    *,
    index: int,
    taken: set[tuple[str, int]],
    drain_s: int,
) -> ProxyPlan:
    """Candidates: the named hosts, else the service's own nodes, then every other node."""
    given = service.given.proxy.nodes
    own = dict.fromkeys(slot.node for pool in pools for replica in pool.replicas for slot in replica.slots)
    every = dict.fromkeys(node.name for group in resolved.groups for node in group.nodes)
    return proxy_plan(
        service,
        admin_port(resolved, index),
        given or (*own, *(n for n in every if n not in own)),
        taken=taken,
        drain_s=drain_s,
    )


def _slowest(predicted: Expectation, metric: str) -> float:
    """Seconds: the cautious p99 of the slowest class."""
    return max(float(getattr(seen, metric).p99.high) for seen in predicted.classes.values()) / 1000


def _node(group: NodeGroupFacts, index: int) -> Node:
    node = group.nodes[index]
    return Node(
        name=node.name,
        group=group.name,
        address=node.address,
        rack=node.rack,
        pinned=node.pinned,
        vendor=group.accelerator.vendor,
        accelerator=group.accelerator.id,
        accelerators=group.per_node,
        nics=group.nics,
        nic_devices=group.nic_devices,
    )


def _model(service: ResolvedService) -> ModelRef:
    return ModelRef(
        id=service.given.model.id,
        path=service.model_path,
        served_name=service.served_name,
        revision=service.given.model.revision,
        max_model_len=service.max_model_len,
        kv_bytes_per_token=service.kv_bytes_per_token_full + service.kv_bytes_per_token_sliding,
    )


def _watch(resolved: ResolvedSpec) -> WatchPolicy | None:
    watch = resolved.spec.watch
    if watch is None:
        return None
    return WatchPolicy(
        mode=watch.mode, interval_s=watch.interval, cooldown_s=watch.cooldown, min_gain=watch.min_gain
    )


def _report(report: Report) -> SolverReport:
    return SolverReport(
        status=report.status,
        objective=report.objective,
        bound=report.bound,
        gap=report.gap,
        wall_s=report.wall_s,
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _ratio(prefill: int, decode: int) -> Ratio:
    return Ratio(prefill=prefill, decode=decode)


def _ratio_of(layout: Layout) -> Ratio | None:
    if layout.mode == "colocated":
        return None
    return _ratio(layout.replicas(Role.PREFILL), layout.replicas(Role.DECODE))


def _nodes_of(pools: Sequence[Pool]) -> Ratio | None:
    """Nodes that hold at least one replica of the role; a node may count for both."""

    def count(role: Role) -> int:
        return len(
            {slot.node for pool in pools if pool.role is role for r in pool.replicas for slot in r.slots}
        )

    return _ratio(count(Role.PREFILL), count(Role.DECODE)) if count(Role.PREFILL) else None


def _layout_nodes(layout: Layout) -> Ratio | None:
    """Whole nodes a layout that was not placed takes at least, by role."""
    if layout.mode == "colocated":
        return None
    taken = {Role.PREFILL: 0, Role.DECODE: 0}
    for pool in layout.pools:
        taken[pool.role] += -(-pool.replicas * pool.shape.accelerators // pool.group.per_node)
    return _ratio(taken[Role.PREFILL], taken[Role.DECODE])


def _comparison(found: ServiceSolution) -> Comparison | None:
    if found.margin is None:
        return None
    margin: Prediction = plan_number(found.margin.ratio)
    undecided = margin.low <= 1 <= margin.high
    return Comparison(
        margin=margin,
        metric=found.margin.metric,
        verdict="undecided, calibrate" if undecided else "decided",
    )


def _alternative(ranked: RankedLayout) -> Alternative:
    layout = ranked.layout
    return Alternative(
        mode=layout.mode,
        ratio=_ratio_of(layout),
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
