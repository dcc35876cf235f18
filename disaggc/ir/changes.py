"""What differs between the plan last built and the plan of now, by address, with the fields of the spec that caused it.

Pure: knows no files, no target and nothing of the running world.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from disaggc.ir.canonical import canonical_json, digest
from disaggc.ir.plan import DeploymentPlan, Element, Pool, ServicePlan

Action = Literal["create", "update", "replace", "remove"]


@dataclass(frozen=True, slots=True)
class Facet:
    """One addressed part of a plan by digests. place: where and how it is spread; process: what runs there.

    process None: the baseline knows only the place (a lock without a build).
    """

    place: str
    process: str | None
    because: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """What besides the spec's own fields decided the plan."""

    catalog: str
    calibration: str | None
    disaggc: str


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was built last. facets by address; fields: dotted spec path -> digest of its value; empty = unknown."""

    facets: Mapping[str, Facet]
    fields: Mapping[str, str]
    origin: Origin | None


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. cause: a sentence fragment for people; fields: the spec paths in it."""

    action: Action
    address: str
    cause: str
    fields: tuple[str, ...]


def origin_of(plan: DeploymentPlan) -> Origin:
    """Catalog, calibration and compiler the plan was made with."""
    made = plan.provenance
    return Origin(made.catalog, made.calibration, made.disaggc)


def facets_of(plan: DeploymentPlan) -> dict[str, Facet]:
    """Every replica, every proxy and every service's routing, by address."""
    found: dict[str, Facet] = {}
    for service in plan.services:
        found[f"{service.name}/routing"] = _routing(service)
        for instance in service.proxy.instances:
            place = _of({"node": instance.node})
            process = _of(
                service.proxy.model_dump(mode="json", exclude={"instances", "because", "deadlines"})
            )
            found[instance.address] = Facet(place, process, service.proxy.because)
        for pool in service.pools:
            found.update(_replicas(service, pool))
    return found


def placement(role: str, shape: Mapping[str, int], slots: Iterable[tuple[str, int, tuple[int, ...]]]) -> str:
    """The place digest of a replica: role, shape and (node, rank, devices) of its slots."""
    return _of({"role": role, "shape": dict(shape), "slots": [list(slot) for slot in sorted(slots)]})


def changes(before: Baseline, plan: DeploymentPlan, fields: Mapping[str, str]) -> tuple[Change, ...]:
    """Differences in address order; a changed place is a replacement, a changed process an update."""
    now = facets_of(plan)
    found = []
    for address in sorted({*before.facets, *now}, key=_by_number):
        action = _action(before.facets.get(address), now.get(address))
        if action is not None:
            facet = now.get(address) or before.facets[address]
            found.append(
                _caused(action, address, facet=facet, before=before, fields=fields, origin=origin_of(plan))
            )
    return tuple(found)


def _action(old: Facet | None, new: Facet | None) -> Action | None:
    if old is None:
        return "create"
    if new is None:
        return "remove"
    if old.place != new.place:
        return "replace"
    return "update" if old.process not in (None, new.process) else None


def _caused(
    action: Action, address: str, *, facet: Facet, before: Baseline, fields: Mapping[str, str], origin: Origin
) -> Change:
    if not before.facets:
        return Change(action, address, _list(facet.because) or "first build", facet.because)
    known = {*before.fields, *fields} if before.fields else set()
    changed = tuple(path for path in sorted(known) if before.fields.get(path) != fields.get(path))
    service = address.partition("/")[0]
    near = tuple(p for p in changed if not p.startswith("services.") or p.startswith(f"services.{service}."))
    direct = tuple(p for p in near if any(_within(p, cause) for cause in facet.because))
    named = direct or near or changed
    if named:
        return Change(action, address, _list(named), named)
    return Change(action, address, _other_cause(before.origin, origin), ())


def _other_cause(before: Origin | None, now: Origin) -> str:
    if before is None:
        return "disaggc.lock records another layout"
    reasons = [
        text
        for differs, text in (
            (before.catalog != now.catalog, "changed catalog facts"),
            (before.calibration != now.calibration, "changed calibration"),
            (before.disaggc != now.disaggc, f"disaggc {before.disaggc} -> {now.disaggc}"),
        )
        if differs
    ]
    return ", ".join(reasons) or "solved anew"


def _within(path: str, cause: str) -> bool:
    return (
        path == cause
        or path.startswith((f"{cause}.", f"{cause}["))
        or cause.startswith((f"{path}.", f"{path}["))
    )


def _list(paths: tuple[str, ...]) -> str:
    return ", ".join(paths)


def _replicas(service: ServicePlan, pool: Pool) -> Iterable[tuple[str, Facet]]:
    engine = {
        "engine": _body(service.engine),
        "model": _body(service.model),
        **pool.model_dump(mode="json", include={"image", "timings", "shm_bytes"}),
    }
    for replica in pool.replicas:
        slots = tuple((slot.node, slot.rank, slot.devices) for slot in replica.slots)
        place = placement(pool.role.value, pool.shape.model_dump(), slots)
        process = {**engine, **replica.model_dump(mode="json", include={"ports", "arguments", "env"})}
        because = tuple(dict.fromkeys((*pool.because, *replica.because)))
        yield replica.address, Facet(place, _of(process), because)


def _routing(service: ServicePlan) -> Facet:
    process = {
        "mode": service.mode,
        "cohort": service.cohort,
        "connector": _body(service.connector) if service.connector else None,
        "links": [[link.prefill, link.decode] for link in service.links],
        "replicas": [
            [r.address, r.ports.http, [s.node for s in r.slots]] for p in service.pools for r in p.replicas
        ],
        "flexible": _body(service.flexible_ratio) if service.flexible_ratio else None,
        "skip_prefill_below": service.skip_prefill_below,
        "deadlines": _body(service.proxy.deadlines),
    }
    return Facet(_of(service.name), _of(process), service.because)


def _body(element: Element) -> object:
    return element.model_dump(mode="json", exclude={"because"})


def _of(value: object) -> str:
    return digest(canonical_json(value)).removeprefix("sha256:")[:16]


def _by_number(address: str) -> tuple[tuple[int, str], ...]:
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in address.split("/"))
