"""Shapes that a spec lets the solver choose from, for rules that ask whether any of them can work at all."""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.catalog.sizing import dcp_allowed
from disaggc.ir.plan import Role, Shape
from disaggc.resolve.model import NodeGroupFacts, PartName, ResolvedService, ResolvedSpec, RoleChoices
from disaggc.spec.model import ShapeChoices


def active_parts(service: ResolvedService) -> tuple[PartName, ...]:
    """The parts of `constraints` that can matter in the service's mode."""
    match service.mode:
        case "colocated":
            return ("colocated",)
        case "disaggregated":
            return ("prefill", "decode")
        case "flexible":
            return ("decode",)
        case "auto":
            return ("prefill", "decode", "colocated")


def written(service: ResolvedService, part: PartName) -> ShapeChoices:
    """That part as the user wrote it."""
    return {
        "prefill": service.given.constraints.prefill,
        "decode": service.given.constraints.decode,
        "colocated": service.given.constraints.colocated,
    }[part]


def stated_in(service: ResolvedService, part: PartName) -> PartName | None:
    """Where that part's shapes are written: what is not said of colocated replicas is decode's. None: said already.

    Where decode is planned too, its own findings stand there.
    """
    if part != "colocated" or "colocated" in service.given.constraints.model_fields_set:
        return part if written(service, part).dcp is not None else None
    return (
        "decode" if service.mode == "colocated" and service.given.constraints.decode.dcp is not None else None
    )


def resolved_choices(service: ResolvedService, part: PartName) -> RoleChoices:
    """That part with defaults filled."""
    return {"prefill": service.prefill, "decode": service.decode, "colocated": service.colocated}[part]


def role_of(part: PartName) -> Role:
    """The plan's role of that part."""
    return Role(part)


def groups(resolved: ResolvedSpec, service: ResolvedService, part: PartName) -> tuple[NodeGroupFacts, ...]:
    """Node groups the part may use."""
    allowed = resolved_choices(service, part).groups
    return tuple(group for group in resolved.groups if group.name in allowed)


def widest_shapes(service: ResolvedService, part: PartName, group: NodeGroupFacts) -> Iterator[Shape]:
    """Shapes worth asking "does it fit anywhere?": where a degree is free, only its smallest and largest values.

    More accelerators never take more memory of one, so when none of these fits, none does.
    """
    choice = resolved_choices(service, part)
    nodes = max(1, len(group.nodes))
    total = nodes * group.per_node
    tps = choice.tp or tuple(d for d in (1, group.per_node) if service.model.heads % d == 0) or (1,)
    pps = choice.pp or (1, nodes)
    dps = choice.dp or ((1, nodes) if service.model.is_moe else (1,))
    for tp in tps:
        for pp in pps:
            for dp in dps:
                if tp * pp * dp <= total:
                    ep = tp * dp if service.model.is_moe and dp > 1 else 1
                    for dcp in choice.dcp:
                        if dcp_allowed(service.model, tp, dcp) is None:
                            yield Shape(tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp)
