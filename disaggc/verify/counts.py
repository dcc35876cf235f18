"""Counts a plan states twice, and the constraints of the spec that counts must keep. No prediction is needed here."""

from __future__ import annotations

from collections.abc import Iterator

from disaggc.diagnostics import Diagnostic, error
from disaggc.ir.plan import Pool, Ratio, Role, ServicePlan
from disaggc.resolve.model import ResolvedService, ResolvedSpec, RoleChoices, part_of
from disaggc.resolve.shared_kv import blockwise_refusal, shared_kv_refusal

_OF_MODE = {
    "disaggregated": {Role.PREFILL, Role.DECODE},
    "colocated": {Role.COLOCATED},
    "flexible": {Role.FLEXIBLE},
}


def broken_counts(
    planned: ServicePlan, service: ResolvedService, resolved: ResolvedSpec
) -> Iterator[Diagnostic]:
    """DGC541 where the plan contradicts itself, DGC542 where it breaks a constraint, DGC462 for mixed vendors."""
    path = ("services", service.name)
    for text in _contradictions(planned):
        yield error("DGC541", f"`{planned.name}` {text}", path)
    for text in _constraints(planned, service, resolved):
        yield error("DGC542", f"`{planned.name}` {text}", (*path, "constraints"))
    pools = {pool.address: pool for pool in planned.pools}
    for link in planned.links:
        ends = [pools[end].vendor for end in (link.prefill, link.decode) if end in pools]
        if len(set(ends)) > 1:
            text = (
                f"{link.prefill} hands KV to {link.decode}: {ends[0]} and {ends[1]} accelerators cannot pair"
            )
            yield error("DGC462", text, path)


def replicas_of(planned: ServicePlan, role: Role) -> int:
    """Replicas of a role."""
    return sum(len(pool.replicas) for pool in planned.pools if pool.role is role)


def _contradictions(planned: ServicePlan) -> Iterator[str]:
    for pool in planned.pools:
        if pool.role not in _OF_MODE[planned.mode]:
            yield f"is {planned.mode} and has a {pool.role.value} pool"
        if not pool.replicas:
            yield f"has {pool.address} without a replica"
    counted = _nodes(planned)
    for name, said, found in (("ratio", planned.ratio, _ratio(planned)), ("nodes", planned.nodes, counted)):
        if said is not None and found is not None and said != found:
            yield f"states {name} {said}, its pools make {found}"
    if planned.mode == "disaggregated" and planned.ratio is None:
        yield "is disaggregated and states no ratio"
    if planned.flexible_ratio is not None:
        split = planned.flexible_ratio.prefill + planned.flexible_ratio.decode
        if split != replicas_of(planned, Role.FLEXIBLE):
            yield f"splits {split} replicas by routing, its pool has {replicas_of(planned, Role.FLEXIBLE)}"
    if (planned.connector is None) != (planned.mode == "colocated"):
        yield f"is {planned.mode} and has {'no' if planned.connector is None else 'a'} connector"


def _ratio(planned: ServicePlan) -> Ratio | None:
    if planned.mode == "colocated":
        return None
    if planned.mode == "flexible":
        return planned.flexible_ratio
    return Ratio(prefill=replicas_of(planned, Role.PREFILL), decode=replicas_of(planned, Role.DECODE))


def _nodes(planned: ServicePlan) -> Ratio | None:
    if planned.mode != "disaggregated":
        return None
    taken = [
        {slot.node for pool in planned.pools if pool.role is role for r in pool.replicas for slot in r.slots}
        for role in (Role.PREFILL, Role.DECODE)
    ]
    return Ratio(prefill=len(taken[0]), decode=len(taken[1]))


def _constraints(planned: ServicePlan, service: ResolvedService, resolved: ResolvedSpec) -> Iterator[str]:
    if service.mode not in ("auto", planned.mode):
        yield f"is {planned.mode}, the spec asks for {service.mode}"
    limits = service.given.constraints
    for role in sorted(_OF_MODE[planned.mode]):
        choices = _choices(service, role)
        count = replicas_of(planned, role)
        if choices.replicas is not None and role is not Role.FLEXIBLE and count != choices.replicas:
            yield f"has {count} {role.value} replicas, the spec asks for {choices.replicas}"
        if count < 1 + limits.spare_replicas:
            yield f"has {count} {role.value} replicas, {limits.spare_replicas} of them may fail"
    for pool in planned.pools:
        yield from _shape(pool, _choices(service, pool.role))
        yield from _shared_kv(pool, service, resolved)
    used = {slot.node for pool in planned.pools for r in pool.replicas for slot in r.slots}
    most, least = limits.max_nodes, service.given.guarantees.nodes
    if most is not None and len(used) > most:
        yield f"takes {len(used)} nodes, the spec allows {most}"
    if least is not None and len(used) < min(least, sum(len(g.nodes) for g in resolved.groups)):
        yield f"takes {len(used)} nodes, {least} are guaranteed"


def _shared_kv(pool: Pool, service: ResolvedService, resolved: ResolvedSpec) -> Iterator[str]:
    """What engines or their kernels refuse; what connectors refuse is a rule about the plan (DGC458)."""
    group = next((g for g in resolved.groups if g.name == pool.group), None)
    if group is None:
        return  # DGC343 says so
    part = part_of(pool.role)
    why = shared_kv_refusal(service, pool.shape, part=part, accelerator=group.accelerator)
    if why is None and pool.role is not Role.COLOCATED:
        why = blockwise_refusal(service, pool.shape, part=part, accelerator=group.accelerator)
    if why is not None:
        yield f"has {pool.shape} in {pool.address}: {why}"


def _choices(service: ResolvedService, role: Role) -> RoleChoices:
    match role:
        case Role.PREFILL:
            return service.prefill
        case Role.COLOCATED:
            return service.colocated
        case Role.DECODE | Role.FLEXIBLE:
            return service.decode


def _shape(pool: Pool, choices: RoleChoices) -> Iterator[str]:
    for name, value, allowed in (
        ("tp", pool.shape.tp, choices.tp),
        ("pp", pool.shape.pp, choices.pp),
        ("dp", pool.shape.dp, choices.dp),
        ("dcp", pool.shape.dcp, choices.dcp),
        ("group", pool.group, choices.groups or None),
    ):
        if allowed is not None and value not in allowed:
            yield f"has {name} {value} in {pool.address}, the spec allows {', '.join(map(str, allowed))}"
    whole = pool.shape.ep > 1
    if choices.expert_parallel is not None and pool.shape.ep not in (1, pool.shape.tp * pool.shape.dp):
        yield f"has ep {pool.shape.ep} in {pool.address}, which is neither 1 nor tp x dp"
    if choices.expert_parallel is False and whole:
        yield f"places experts whole in {pool.address}, the spec forbids it"
