"""`disaggc.explain/v1` and `disaggc.page/v1`: what `disaggc explain --format json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from disaggc.cli.views.document import Document, Item
from disaggc.cli.views.terms_items import TermsItem, terms_item
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
from disaggc.perf.changed import Quantity
from disaggc.perf.sensitivity import Sensitivity

if TYPE_CHECKING:
    from disaggc.cli.sensitive import Sensitive
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
    """Prefill: share of time busy; decode and colocated: share of slots in use; null where not computed."""
    timings: Timings
    """Lifecycle limits, seconds."""
    because: tuple[str, ...]
    """Fields of the spec that caused it."""


class ResponseItem(Item):
    """What the plan's layout does when a quantity is multiplied by `factor`; factors on the present figures."""

    factor: float
    total_tok_per_s: float
    e2e_p50: float
    tokens_per_cost: float | None
    """Null without prices."""


class UnansweredItem(Item):
    """A factor at which there is nothing to tell."""

    factor: float
    reason: str


class BreakEvenItem(Item):
    """Where another layout becomes the better one."""

    value: float
    """Of the quantity, in its unit."""
    direction: Literal["above", "below"]
    """On which side of the value."""
    better: str
    """The layout that is better there."""


class SensitivityItem(Item):
    """How the plan answers to one quantity."""

    quantity: Quantity
    value: float
    """Now: tokens, requests per second, requests, bytes per second of one network card, or money per hour."""
    responses: tuple[ResponseItem, ...]
    unanswered: tuple[UnansweredItem, ...]
    """Factors without a response, and why."""
    break_evens: tuple[BreakEvenItem, ...]


class RunItem(Item):
    """A run that ends, from an empty cluster to the last answer."""

    requests: int
    """How many."""
    predicted: Expectation
    """What it would measure."""


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
    terms: TermsItem | None
    """What the predictions are made of; null where they cannot be taken apart."""
    sensitivity: tuple[SensitivityItem, ...]
    """By quantity."""
    run: RunItem | None
    """The run that `--requests` asks about."""


class ExplainDocument(Document):
    """Output of `disaggc explain SPEC --format json`."""

    schema_: Annotated[Literal["disaggc.explain/v1"], Field(alias="schema")] = "disaggc.explain/v1"
    """Name and version of this format."""
    services: dict[str, ServiceReasons]
    """By name; empty without a plan."""
    diagnostics: tuple[DiagnosticItem, ...]
    """Findings, sorted by position."""


def explain_document(done: Compiled, changes: Mapping[str, Sensitive]) -> ExplainDocument:
    """The reasons behind a plan."""
    services = done.plan.services if done.plan is not None else ()
    return ExplainDocument(
        services={service.name: _service(service, changes.get(service.name)) for service in services},
        diagnostics=tuple(DiagnosticItem.model_validate(item) for item in items(done.report)),
    )


def _service(service: ServicePlan, changes: Sensitive | None) -> ServiceReasons:
    run = None if changes is None else changes.run
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
        terms=None if changes is None or changes.terms is None else terms_item(changes.terms),
        sensitivity=() if changes is None else tuple(_sensitivity(s, changes) for s in changes.found),
        run=None if run is None else RunItem(requests=run.requests, predicted=run.predicted),
    )


def _sensitivity(found: Sensitivity, changes: Sensitive) -> SensitivityItem:
    return SensitivityItem(
        quantity=found.quantity,
        value=float(f"{found.value:.12g}"),
        responses=tuple(
            ResponseItem(
                factor=r.factor,
                total_tok_per_s=_rounded(r.total_tok_per_s),
                e2e_p50=_rounded(r.e2e_p50),
                tokens_per_cost=None if r.tokens_per_cost is None else _rounded(r.tokens_per_cost),
            )
            for r in found.responses
        ),
        unanswered=tuple(UnansweredItem(factor=u.factor, reason=u.reason) for u in found.unanswered),
        break_evens=tuple(
            BreakEvenItem(
                value=_rounded(b.value),
                direction="above" if b.above else "below",
                better=changes.names[b.better],
            )
            for b in found.break_evens
        ),
    )


def _rounded(value: float) -> float:
    """Three digits: a break-even is found to 1 %."""
    return float(f"{value:.3g}")


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
