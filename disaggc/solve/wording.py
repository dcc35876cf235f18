"""Requirements in the user's words and units, for the sentences of conflict."""

from __future__ import annotations

from disaggc import units
from disaggc.ir.plan import Role
from disaggc.resolve.model import ClassLoad, ResolvedService, ResolvedSpec
from disaggc.solve.relax import Requirement


def said(resolved: ResolvedSpec, one: Requirement) -> str:
    """`ttft_p90` 10.0 s of `rag`, as the spec has it now."""
    service = next(s for s in resolved.services if s.name == one.service)
    if one.load:
        load = next(c for c in service.classes if c.name == one.load)
        return f"{_traffic(load) if one.bound is None else _limit(load, one)} of `{one.load}`"
    return f"{_constraint(service, one)} of `{one.service}`"


def _limit(load: ClassLoad, one: Requirement) -> str:
    limits = [
        bound.limit_s
        for bound in load.bounds
        if one.bound is not None
        and (bound.metric, bound.percentile) == (one.bound.metric, one.bound.percentile)
    ]
    return f"`{one.path[-1]}` {units.format_duration(limits[0])}" if limits else f"`{one.path[-1]}`"


def _plain(rate: float) -> str:
    """Four significant digits, never an exponent."""
    return f"{float(f'{rate:.4g}'):,.6f}".rstrip("0").rstrip(".")


def _traffic(load: ClassLoad) -> str:
    parts = [f"`rate` {_plain(load.rate)}/s"] if load.rate is not None else []
    parts += [f"`concurrency` {load.concurrency}"] if load.concurrency is not None else []
    return " with ".join(parts)


def _constraint(service: ResolvedService, one: Requirement) -> str:
    constraints, guarantees = service.given.constraints, service.given.guarantees
    match one.kind:
        case "max-nodes":
            return f"`max_nodes` {constraints.max_nodes}"
        case "min-nodes":
            return f"`guarantees.nodes` {guarantees.nodes}"
        case "floor":
            return f"`guarantees.rate` {_plain(guarantees.rate or 0.0)}/s"
        case "spare":
            return f"`spare_replicas` {constraints.spare_replicas}"
        case _:
            choices = {Role.PREFILL: service.prefill, Role.DECODE: service.decode}
            count = choices.get(one.role or Role.COLOCATED, service.colocated).replicas
            return f"`{one.path[-2]}.replicas` {count}"
