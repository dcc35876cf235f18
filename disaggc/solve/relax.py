"""Requirements of a spec as things that can be dropped or eased, one at a time, to ask what then holds.

Only rewrites the resolved spec; solves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from disaggc.diagnostics import FieldPath
from disaggc.ir.plan import Role
from disaggc.resolve.model import Bound, ClassLoad, NodeGroupFacts, NodeRef, ResolvedService, ResolvedSpec

RequirementKind = Literal["floor", "min-nodes", "spare", "replicas", "max-nodes", "load", "bound"]
LIGHT = 1e-4
"""Share of the load that stands for "hardly any" when the load is dropped: enough for an hour written as a second."""
_ROLES = {Role.PREFILL: "prefill", Role.DECODE: "decode", Role.COLOCATED: "colocated"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing the spec asks for. load: the class of a bound; role: of a fixed replica count."""

    kind: RequirementKind
    service: str
    path: FieldPath
    load: str = ""
    bound: Bound | None = None
    role: Role | None = None


def requirements(resolved: ResolvedSpec) -> tuple[Requirement, ...]:
    """Everything a spec asks for, in the order in which a conflict would rather do without it."""
    return tuple(r for service in resolved.services for r in _of(service))


def dropped(resolved: ResolvedSpec, requirement: Requirement) -> ResolvedSpec:
    """The spec without it; load is not removed but made light."""
    return _changed(resolved, requirement.service, lambda service: _without(service, requirement))


def eased(resolved: ResolvedSpec, requirement: Requirement, value: float) -> ResolvedSpec:
    """The spec with another limit for a bound (seconds), another factor for load, another number of nodes."""

    def change(service: ResolvedService) -> ResolvedService:
        match requirement.kind:
            case "bound":
                return _with_classes(service, lambda c: _bounded(c, requirement, value))
            case "load":
                return _with_classes(service, lambda c: _scaled(c, value))
            case "max-nodes":
                return _with_constraints(service, max_nodes=int(value))
            case _:
                return service

    return _changed(resolved, requirement.service, change)


def enlarged(resolved: ResolvedSpec, group: str, more: int) -> ResolvedSpec:
    """The spec with so many more nodes in a group."""

    def grown(facts: NodeGroupFacts) -> NodeGroupFacts:
        added = tuple(NodeRef(f"{facts.name}+{i + 1}", None, None, pinned=False) for i in range(more))
        return replace(facts, nodes=(*facts.nodes, *added))

    return replace(resolved, groups=tuple(grown(g) if g.name == group else g for g in resolved.groups))


def _of(service: ResolvedService) -> Iterator[Requirement]:
    here: FieldPath = ("services", service.name)
    given = service.given
    if given.guarantees.rate is not None:
        yield Requirement("floor", service.name, (*here, "guarantees", "rate"))
    if given.guarantees.nodes is not None:
        yield Requirement("min-nodes", service.name, (*here, "guarantees", "nodes"))
    if given.constraints.spare_replicas:
        yield Requirement("spare", service.name, (*here, "constraints", "spare_replicas"))
    for role, name in _ROLES.items():
        if getattr(service, name).replicas is not None:
            yield Requirement("replicas", service.name, (*here, "constraints", name, "replicas"), role=role)
    if given.constraints.max_nodes is not None:
        yield Requirement("max-nodes", service.name, (*here, "constraints", "max_nodes"))
    heaviest = max(service.classes, key=lambda c: (c.rate or 0.0, c.concurrency or 0))
    field = "rate" if heaviest.rate is not None else "concurrency"
    yield Requirement("load", service.name, (*here, "workload", heaviest.name, field), load=heaviest.name)
    for load in service.classes:
        for bound in load.bounds:
            path = (*here, "workload", load.name, "objectives", f"{bound.metric}_p{bound.percentile}")
            yield Requirement("bound", service.name, path, load=load.name, bound=bound)


def _changed(
    resolved: ResolvedSpec, name: str, change: Callable[[ResolvedService], ResolvedService]
) -> ResolvedSpec:
    def over(services: tuple[ResolvedService, ...]) -> tuple[ResolvedService, ...]:
        return tuple(change(s) if s.name == name else s for s in services)

    scenarios = tuple(replace(s, services=over(s.services)) for s in resolved.scenarios)
    return replace(resolved, services=over(resolved.services), scenarios=scenarios)


def _without(service: ResolvedService, requirement: Requirement) -> ResolvedService:
    match requirement.kind:
        case "floor" | "min-nodes":
            field = "rate" if requirement.kind == "floor" else "nodes"
            return _with_guarantees(service, **{field: None})
        case "spare":
            return _with_constraints(service, spare_replicas=0)
        case "max-nodes":
            return _with_constraints(service, max_nodes=None)
        case "replicas":
            return _any_count(service, requirement.role)
        case "load":
            return _with_classes(service, lambda c: _scaled(c, LIGHT))
        case "bound":
            return _with_classes(service, lambda c: _bounded(c, requirement, None))


def _any_count(service: ResolvedService, role: Role | None) -> ResolvedService:
    match role:
        case Role.PREFILL:
            return replace(service, prefill=replace(service.prefill, replicas=None))
        case Role.DECODE:
            return replace(service, decode=replace(service.decode, replicas=None))
        case _:
            return replace(service, colocated=replace(service.colocated, replicas=None))


def _with_constraints(service: ResolvedService, **update: int | None) -> ResolvedService:
    constraints = service.given.constraints.model_copy(update=update)
    return replace(service, given=service.given.model_copy(update={"constraints": constraints}))


def _with_guarantees(service: ResolvedService, **update: float | None) -> ResolvedService:
    guarantees = service.given.guarantees.model_copy(update=update)
    return replace(service, given=service.given.model_copy(update={"guarantees": guarantees}))


def _with_classes(service: ResolvedService, change: Callable[[ClassLoad], ClassLoad]) -> ResolvedService:
    return replace(service, classes=tuple(change(c) for c in service.classes))


def _scaled(load: ClassLoad, factor: float) -> ClassLoad:
    rate = None if load.rate is None else load.rate * factor
    cap = None if load.concurrency is None else max(1, round(load.concurrency * factor))
    return replace(load, rate=rate, concurrency=cap)


def _bounded(load: ClassLoad, requirement: Requirement, limit_s: float | None) -> ClassLoad:
    """The class with this bound at another limit, or without it (None)."""
    meant = requirement.bound
    if load.name != requirement.load or meant is None:
        return load
    kept = []
    for bound in load.bounds:
        if (bound.metric, bound.percentile) != (meant.metric, meant.percentile):
            kept.append(bound)
        elif limit_s is not None:
            kept.append(replace(bound, limit_s=limit_s))
    return replace(load, bounds=tuple(kept))
