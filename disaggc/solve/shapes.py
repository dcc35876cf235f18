"""Which shapes a role may take on a node group: the user's lists, else what divides the model and fits the hardware.

Knows memory only as "fits or not"; counts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from disaggc.catalog.sizing import tp_allowed
from disaggc.ir.plan import Role, Shape
from disaggc.perf.memory import NoFit
from disaggc.perf.models import Models
from disaggc.resolve.model import NodeGroupFacts, ResolvedService, RoleChoices, part_of
from disaggc.resolve.pairing import shape_refusal
from disaggc.resolve.shared_kv import blockwise_refusal, shared_kv_refusal

_MOST_NODES = 16
"""Nodes one replica may span when nothing smaller fits."""


def choices_of(service: ResolvedService, role: Role) -> RoleChoices:
    """The user's limits for a role."""
    match role:
        case Role.PREFILL if service.mode == "flexible":
            # one pool: what is left open here is as for decode, or no two shapes would be equal
            mine, decode = service.prefill, service.decode
            dcp = decode.dcp if service.given.constraints.prefill.dcp is None else mine.dcp
            return replace(mine, pp=mine.pp or decode.pp, dp=mine.dp or decode.dp, dcp=dcp)
        case Role.PREFILL:
            return service.prefill
        case Role.COLOCATED:
            return service.colocated
        case Role.DECODE | Role.FLEXIBLE:
            return service.decode


def shapes_for(
    models: Models, service: ResolvedService, role: Role, *, group: NodeGroupFacts
) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """Shapes whose memory fits, and why the others do not.

    Where the user leaves the shape open and nothing fits on one node, the fewest nodes on which something does.
    """
    choices = choices_of(service, role)
    refused: list[str] = []
    fitting = _fitting(
        models, service, role, group=group, shapes=_within(service, choices, group), refused=refused
    )
    if not fitting and choices.tp is None and group.accelerator.link_domain < group.per_node:
        wide = [s for tp in _powers(group.per_node) for s in _shapes(service, choices, (tp, 1, 1))]
        fitting = _fitting(models, service, role, group=group, shapes=wide, refused=refused)
    if not fitting and choices.tp is None and choices.dp is None and choices.pp is None:
        for nodes in range(2, min(len(group.nodes), _MOST_NODES) + 1):
            across = list(_across(service, choices, group, nodes=nodes))
            fitting = _fitting(models, service, role, group=group, shapes=across, refused=refused)
            if fitting:
                break
    return fitting, tuple(dict.fromkeys(refused))


def _fitting(
    models: Models,
    service: ResolvedService,
    role: Role,
    *,
    group: NodeGroupFacts,
    shapes: list[Shape],
    refused: list[str],
) -> tuple[Shape, ...]:
    found: list[Shape] = []
    for shape in dict.fromkeys(shapes):
        indivisible = tp_allowed(service.model, shape.tp)
        if indivisible is not None:
            refused.append(indivisible)
            continue
        unshared = shared_kv_refusal(service, shape, part=part_of(role), accelerator=group.accelerator)
        if unshared is not None:
            refused.append(unshared)
            continue
        if not _on_nodes(shape, group):
            refused.append(f"{shape} does not fill whole nodes of {group.per_node} x {group.accelerator.id}")
            continue
        if role in (Role.PREFILL, Role.DECODE):
            refusal = shape_refusal(
                service, "prefill" if role is Role.PREFILL else "decode", shape
            ) or blockwise_refusal(service, shape, part=part_of(role), accelerator=group.accelerator)
            if refusal is not None:
                refused.append(refusal)
                continue
        memory = models.memory(service, group, role, shape=shape)
        if isinstance(memory, NoFit):
            refused.append(str(memory))
            continue
        found.append(shape)
    return tuple(found)


def _on_nodes(shape: Shape, group: NodeGroupFacts) -> bool:
    """Inside one node, or whole nodes with every tensor-parallel group on one of them or spanning whole ones."""
    total = shape.accelerators
    if total <= group.per_node:
        return True
    aligned = group.per_node % shape.tp == 0 or shape.tp % group.per_node == 0
    return aligned and total % group.per_node == 0 and total // group.per_node <= len(group.nodes)


def _within(service: ResolvedService, choices: RoleChoices, group: NodeGroupFacts) -> list[Shape]:
    domain = min(group.per_node, max(group.accelerator.link_domain, 1))
    tps = choices.tp or tuple(tp for tp in _powers(domain) if tp_allowed(service.model, tp) is None)
    degrees = product(tps, choices.pp or (1,), choices.dp or (1,))
    return [shape for each in degrees for shape in _shapes(service, choices, each)]


def _across(
    service: ResolvedService, choices: RoleChoices, group: NodeGroupFacts, *, nodes: int
) -> Iterator[Shape]:
    """Experts over several nodes, else pipeline stages, else one tensor-parallel group over all of them."""
    allowed = [
        tp
        for tp in _powers(group.per_node)
        if tp_allowed(service.model, tp) is None and group.per_node % tp == 0
    ]
    if not allowed:
        return
    widest = allowed[-1]
    if service.model.is_moe:
        yield from _shapes(service, choices, (widest, 1, nodes * group.per_node // widest))
        return
    if widest == group.per_node:
        yield from _shapes(service, choices, (widest, nodes, 1))
        yield from _shapes(service, choices, (widest * nodes, 1, 1))


def _shapes(service: ResolvedService, choices: RoleChoices, degrees: tuple[int, int, int]) -> Iterator[Shape]:
    """With every `dcp` that is asked for.

    Experts are placed whole when asked for, or when data-parallel ranks would otherwise each hold all of them.
    """
    tp, pp, dp = degrees
    whole = choices.expert_parallel if choices.expert_parallel is not None else dp > 1
    ep = tp * dp if service.model.is_moe and whole else 1
    for dcp in choices.dcp:
        yield Shape(tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp)


def _powers(most: int) -> list[int]:
    return [1 << k for k in range(most.bit_length()) if 1 << k <= most]
