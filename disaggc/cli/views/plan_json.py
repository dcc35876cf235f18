"""`disaggc.plan/v1`: what `disaggc plan --format json` prints. The schema in schemas/ is generated from these types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document, Item
from disaggc.diagnostics.render.json import DiagnosticItem, items
from disaggc.ir.canonical import fingerprint
from disaggc.ir.plan import (
    Alternative,
    Comparison,
    Expectation,
    Pool,
    Ratio,
    ServicePlan,
    Shape,
)

if TYPE_CHECKING:
    from disaggc.compilation import Compiled


class PoolItem(Item):
    """Identical replicas of one role."""

    address: str
    """`service/role`."""
    role: str
    """prefill, decode, colocated or flexible."""
    replicas: int
    """How many."""
    accelerator: str
    """Catalog id."""
    shape: Shape
    """How each replica is spread."""
    nodes: tuple[str, ...]
    """Nodes they run on, each once."""


class ServiceItem(Item):
    """One service as it should run."""

    mode: Literal["disaggregated", "colocated", "flexible"]
    """How it serves."""
    ratio: Ratio | None
    """Replicas per role; null when colocated."""
    nodes: Ratio | None
    """Nodes per role; null when colocated."""
    pools: tuple[PoolItem, ...]
    """Its pools."""
    predicted: Expectation
    """What it will do."""
    colocated: Expectation | None
    """What the best colocated layout on the same nodes would do."""
    comparison: Comparison | None
    """The chosen mode against the other."""
    alternatives: tuple[Alternative, ...]
    """Layouts that were weighed, best first."""
    bottleneck: str
    """The limit that binds."""
    prefill_doubling_rate: float | None
    """Requests per second at which one more prefill node pays; null where not computed."""


class SolverItem(Item):
    """How the answer was found; numbers are null where there is no answer."""

    status: Literal["optimal", "feasible", "locked", "infeasible", "not-proved", "not-run"]
    """infeasible is proved; not-proved ran into its limit; not-run: the spec has errors."""
    objective: float | None = None
    bound: float | None = None
    gap: float | None = None
    wall_s: float | None = None


class ChangeItem(Item):
    """One difference to what was built last."""

    action: Literal["create", "update", "replace", "remove"]
    """replace: another place or shape; update: the same place, another configuration."""
    address: str
    """`service/role/index`."""
    cause: str
    """Why, for people."""
    fields: tuple[str, ...]
    """The fields of the spec that caused it."""


class PlanDocument(Document):
    """Output of `disaggc plan --format json`."""

    schema_: Annotated[Literal["disaggc.plan/v1"], Field(alias="schema")] = "disaggc.plan/v1"
    """Name and version of this format."""
    fingerprint: str | None
    """Digest of the plan; null without one."""
    target: str | None
    """Target it was compiled for."""
    services: dict[str, ServiceItem]
    """By name; empty without a plan."""
    solver: SolverItem
    changes: tuple[ChangeItem, ...]
    """Differences to the last build, or to disaggc.lock where nothing was built."""
    diagnostics: tuple[DiagnosticItem, ...]
    """Findings, sorted by position."""


def plan_document(done: Compiled) -> PlanDocument:
    """The plan, or what there is to say without one."""
    plan = done.plan
    return PlanDocument(
        fingerprint=fingerprint(plan) if plan is not None else None,
        target=done.target,
        services={service.name: _service(service) for service in plan.services} if plan is not None else {},
        solver=SolverItem.model_validate(plan.solver.model_dump()) if plan is not None else _no_answer(done),
        changes=tuple(
            ChangeItem(action=c.action, address=c.address, cause=c.cause, fields=c.fields)
            for c in done.changes
        ),
        diagnostics=tuple(DiagnosticItem.model_validate(item) for item in items(done.report)),
    )


def _no_answer(done: Compiled) -> SolverItem:
    codes = {d.code for d in done.report.diagnostics}
    if "DGC501" in codes:
        return SolverItem(status="infeasible")
    return SolverItem(status="not-proved" if "DGC502" in codes else "not-run")


def _service(service: ServicePlan) -> ServiceItem:
    return ServiceItem(
        mode=service.mode,
        ratio=service.ratio,
        nodes=service.nodes,
        pools=tuple(_pool(pool) for pool in service.pools),
        predicted=service.predicted,
        colocated=service.colocated,
        comparison=service.comparison,
        alternatives=service.alternatives,
        bottleneck=service.predicted.bottleneck,
        prefill_doubling_rate=service.prefill_doubling_rate,
    )


def _pool(pool: Pool) -> PoolItem:
    nodes = dict.fromkeys(slot.node for replica in pool.replicas for slot in replica.slots)
    return PoolItem(
        address=pool.address,
        role=pool.role.value,
        replicas=len(pool.replicas),
        accelerator=pool.accelerator,
        shape=pool.shape,
        nodes=tuple(nodes),
    )
