"""`disaggc.explain/v1` and `disaggc.page/v1`: what `disaggc explain --format json` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document, Item
from disaggc.diagnostics.render.json import DiagnosticItem, items
from disaggc.ir.plan import (
    Alternative,
    Comparison,
    Expectation,
    KvLink,
    Memory,
    Pool,
    Ratio,
    ServicePlan,
    Shape,
    Timings,
)

if TYPE_CHECKING:
    from disaggc.compilation import Compiled


class PageDocument(Document):
    """Output of `disaggc explain CODE --format json`."""

    schema_: Annotated[Literal["disaggc.page/v1"], Field(alias="schema")] = "disaggc.page/v1"
    """Name and version of this format."""
    code: str
    """Stable identifier."""
    page: str
    """Plain text."""


class PoolReasons(Item):
    """Why a pool has its size."""

    address: str
    """`service/role`."""
    role: str
    """What its replicas do."""
    replicas: int
    """How many."""
    shape: Shape
    """How each is spread."""
    memory: Memory
    """Where one accelerator's memory goes, bytes."""
    load_per_replica: float
    """Requests per second each replica is planned for."""
    operating_batch: float
    """Sequences running at once per replica."""
    utilisation: float | None
    """Share of the role's capacity in use; null where not computed."""
    timings: Timings
    """Lifecycle limits, seconds."""
    because: tuple[str, ...]
    """Fields of the spec that caused it."""


class ServiceReasons(Item):
    """Why a service is laid out as it is."""

    mode: str
    """How it serves."""
    ratio: Ratio | None
    """Replicas per role; null when colocated."""
    bottleneck: str
    """The limit that binds."""
    pools: tuple[PoolReasons, ...]
    """Its pools."""
    links: tuple[KvLink, ...]
    """Which pool hands KV to which."""
    predicted: Expectation
    """What it will do."""
    colocated: Expectation | None
    """What the best colocated layout would do."""
    comparison: Comparison | None
    """The chosen mode against the other."""
    alternatives: tuple[Alternative, ...]
    """Layouts that were weighed, best first."""
    prefill_doubling_rate: float | None
    """Requests per second at which one more prefill node pays; null where not computed."""
    skip_prefill_below: int
    """Uncached prompt tokens under which decode prefills alone."""


class ExplainDocument(Document):
    """Output of `disaggc explain SPEC --format json`."""

    schema_: Annotated[Literal["disaggc.explain/v1"], Field(alias="schema")] = "disaggc.explain/v1"
    """Name and version of this format."""
    services: dict[str, ServiceReasons]
    """By name; empty without a plan."""
    diagnostics: tuple[DiagnosticItem, ...]
    """Findings, sorted by position."""


def explain_document(done: Compiled) -> ExplainDocument:
    """The reasons behind a plan."""
    services = done.plan.services if done.plan is not None else ()
    return ExplainDocument(
        services={service.name: _service(service) for service in services},
        diagnostics=tuple(DiagnosticItem.model_validate(item) for item in items(done.report)),
    )


def _service(service: ServicePlan) -> ServiceReasons:
    return ServiceReasons(
        mode=service.mode,
        ratio=service.ratio,
        bottleneck=service.predicted.bottleneck,
        pools=tuple(_pool(pool, service.predicted.utilisation) for pool in service.pools),
        links=service.links,
        predicted=service.predicted,
        colocated=service.colocated,
        comparison=service.comparison,
        alternatives=service.alternatives,
        prefill_doubling_rate=service.prefill_doubling_rate,
        skip_prefill_below=service.skip_prefill_below,
    )


def _pool(pool: Pool, utilisation: dict[str, float]) -> PoolReasons:
    return PoolReasons(
        address=pool.address,
        role=pool.role.value,
        replicas=len(pool.replicas),
        shape=pool.shape,
        memory=pool.memory,
        load_per_replica=pool.load_per_replica,
        operating_batch=pool.operating_batch,
        utilisation=utilisation.get(pool.role.value),
        timings=pool.timings,
        because=pool.because,
    )
