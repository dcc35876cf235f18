"""What `explain` tells about change: a plan's layout and its rivals, each quantity's effect, the turning points.

Prints nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from disaggc.cli.modes import planned
from disaggc.compilation import Compiled, Request
from disaggc.ir.plan import Alternative, Expectation, Role, ServicePlan
from disaggc.perf.expectation import expectation
from disaggc.perf.layout import Layout, PoolLayout
from disaggc.perf.models import Models
from disaggc.perf.predict import predict
from disaggc.perf.sensitivity import Progress, Sensitivity, sensitivities
from disaggc.perf.terms import Terms, terms_of
from disaggc.pipeline import check
from disaggc.resolve.model import NodeGroupFacts, ResolvedService

_RIVALS = 5


@dataclass(frozen=True, slots=True)
class EndingRun:
    """What a run of so many requests would measure, from an empty cluster to the last answer."""

    requests: int
    predicted: Expectation


@dataclass(frozen=True, slots=True)
class Sensitive:
    """One service. names: of the layouts a break-even may name, the chosen one first; currency of the price.

    terms: what the plan's predictions are made of. run: None where none was asked about.
    """

    names: tuple[str, ...]
    found: tuple[Sensitivity, ...]
    currency: str
    terms: Terms | None = None
    run: EndingRun | None = None


def sensitive(
    done: Compiled, request: Request, *, requests: int | None = None, progress: Progress | None = None
) -> dict[str, Sensitive]:
    """By service; empty without a plan. requests: of a run that ends, beside the steady state."""
    resolved = check(request).resolved
    if done.plan is None or resolved is None:
        return {}
    models = Models.of(resolved)
    if models.value is None:
        return {}
    groups = {group.name: group for group in resolved.groups}
    services = {service.name: service for service in resolved.services}
    out = {}
    for plan in done.plan.services:
        service = services[plan.name]
        found = _of(models.value, service, plan, groups=groups, progress=progress)
        if requests is not None:
            ends = predict(models.value, service, planned(plan, groups), requests=requests)
            found = replace(found, run=EndingRun(requests, expectation(ends)))
        out[plan.name] = found
    return out


def _of(
    models: Models,
    service: ResolvedService,
    plan: ServicePlan,
    *,
    groups: dict[str, NodeGroupFacts],
    progress: Progress | None,
) -> Sensitive:
    chosen = planned(plan, groups)
    named = {_name(plan.mode, plan): chosen}
    for other in plan.alternatives:
        if service.mode in ("auto", other.mode) and len(groups) == 1 and len(named) <= _RIVALS:
            named.setdefault(_other_name(other), _layout(other, next(iter(groups.values()))))
    aim = models.resolved.spec.optimize
    found = sensitivities(
        models, service, tuple(named.values()), latency_first=aim == "latency", progress=progress
    )
    priced = [g.price for g in groups.values() if g.price is not None]
    return Sensitive(
        tuple(named), found, priced[0].currency if priced else "", terms_of(predict(models, service, chosen))
    )


def _name(mode: str, plan: ServicePlan) -> str:
    if plan.ratio is not None and mode == "disaggregated":
        return str(plan.ratio)
    return f"{sum(len(pool.replicas) for pool in plan.pools)} {mode}"


def _other_name(other: Alternative) -> str:
    if other.ratio is not None and other.mode == "disaggregated":
        return str(other.ratio)
    return f"{other.replicas} {other.mode}"


def _layout(other: Alternative, group: NodeGroupFacts) -> Layout:
    """An alternative as perf sees it, on the cluster's one node group."""
    if other.ratio is None:
        shape = next(iter(other.shapes.values()))
        return Layout(other.mode, (PoolLayout(Role.COLOCATED, group, shape, other.replicas),))
    prefill = other.shapes.get("prefill") or next(iter(other.shapes.values()))
    decode = other.shapes.get("decode") or prefill
    return Layout(
        other.mode,
        (
            PoolLayout(Role.PREFILL, group, prefill, other.ratio.prefill),
            PoolLayout(Role.DECODE, group, decode, other.ratio.decode),
        ),
    )
