"""Puts the DeploymentPlan together from the solution: the one place where every part of it meets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from disaggc import __version__
from disaggc.ir.plan import (
    Deadlines,
    DeploymentPlan,
    EngineRelease,
    Expectation,
    ModelRef,
    Node,
    NumaDomain,
    Overcommit,
    Pool,
    Provenance,
    ProxyPlan,
    Ratio,
    Role,
    RolloutPolicy,
    ServicePlan,
    SolverReport,
    WatchPolicy,
)
from disaggc.perf.expectation import expectation
from disaggc.perf.models import Models
from disaggc.perf.thresholds import break_even_tokens
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, ResolvedSpec
from disaggc.solve.lower.admission import overcommit
from disaggc.solve.lower.cohort import cohort
from disaggc.solve.lower.connector import connector_plan
from disaggc.solve.lower.deadlines import deadlines, slowest
from disaggc.solve.lower.front import proxy_plan, skip_below
from disaggc.solve.lower.lifecycle import drain, lease
from disaggc.solve.lower.links import handoff_s, kv_links
from disaggc.solve.lower.pools import Lifetimes, service_pools
from disaggc.solve.lower.ports import admin_port, metrics_port
from disaggc.solve.lower.weighed import alternative, comparison, ratio, ratio_of
from disaggc.solve.solution import Report, ServiceSolution, Solution

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
            step_times=None if models.library is None else models.library.source,
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
    times = _lifetimes(models, service, found, predicted=predicted)
    connector = None if found.mode == "colocated" else connector_plan(service, times.lease_s)
    pools = service_pools(models, service, found, connector=connector, times=times)
    flexible_ratio = None if found.flexible_ratio is None else ratio(*found.flexible_ratio)
    return ServicePlan(
        name=service.name,
        mode=found.mode,
        cohort=cohort(models.resolved, service),
        model=_model(service),
        engine=_release(service),
        connector=connector,
        pools=pools,
        links=() if connector is None else kv_links(models, service, pools),
        proxy=_proxy(
            models.resolved,
            service,
            pools,
            index=index,
            taken=taken,
            drain_s=max(times.drain_s, *(pool.timings.grace_s for pool in pools)),
            limits=(
                overcommit(service, pools, predicted, split=flexible_ratio),
                deadlines(service, predicted, times.lease_s),
            ),
        ),
        ratio=ratio_of(found.layout),
        nodes=_nodes_of(pools),
        flexible_ratio=flexible_ratio,
        priorities={load.name: load.priority for load in service.classes},
        skip_prefill_below=(
            0 if connector is None else skip_below(service, break_even_tokens(service, found.prediction))
        ),
        predicted=predicted,
        colocated=None if found.colocated is None else expectation(found.colocated),
        comparison=comparison(found),
        alternatives=tuple(alternative(ranked) for ranked in found.alternatives[:MOST_ALTERNATIVES]),
        prefill_doubling_rate=found.prefill_doubling_rate,
        because=(f"services.{service.name}",),
    )


def _lifetimes(
    models: Models, service: ResolvedService, found: ServiceSolution, *, predicted: Expectation
) -> Lifetimes:
    handoff = handoff_s(models, service, found)
    return Lifetimes(
        lease_s=lease(
            service.given.engine.connector.lease,
            slowest(predicted, "ttft_ms"),
            handoff,
            handoff=service.given.proxy.timeouts.handoff,
        ),
        drain_s=drain(
            models.resolved.spec.rollout.drain_timeout,
            slowest(predicted, "e2e_ms"),
            flexible=found.flexible_ratio is not None,
        ),
        handoff_s=handoff,
    )


def _proxy(
    resolved: ResolvedSpec,
    service: ResolvedService,
    pools: Sequence[Pool],
    *,
    index: int,
    taken: set[tuple[str, int]],
    drain_s: int,
    limits: tuple[Overcommit, Deadlines],
) -> ProxyPlan:
    """Candidates: the named hosts, else the service's own nodes, then every other node."""
    given = service.given.proxy.nodes
    own = dict.fromkeys(slot.node for pool in pools for replica in pool.replicas for slot in replica.slots)
    every = dict.fromkeys(node.name for group in resolved.groups for node in group.nodes)
    return proxy_plan(
        service,
        (admin_port(resolved, index), metrics_port(resolved, index)),
        given or (*own, *(n for n in every if n not in own)),
        taken=taken,
        drain_s=drain_s,
        limits=limits,
    )


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
        numa=tuple(NumaDomain(devices=domain.devices, cpus=domain.cpus) for domain in group.numa),
    )


def _release(service: ResolvedService) -> EngineRelease:
    engine = service.given.engine
    return EngineRelease(version=engine.vllm, snapshot=service.snapshot.text, command=engine.command)


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


def _nodes_of(pools: Sequence[Pool]) -> Ratio | None:
    """Nodes that hold at least one replica of the role; a node may count for both."""

    def count(role: Role) -> int:
        return len(
            {slot.node for pool in pools if pool.role is role for r in pool.replicas for slot in r.slots}
        )

    return ratio(count(Role.PREFILL), count(Role.DECODE)) if count(Role.PREFILL) else None
