"""`disaggc.simulate/v1`: what `disaggc simulate --format json` prints; schemas/ holds the schema of these types."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from disaggc.cli.runs import FIGURES, Simulated, range_of, ratio_of
from disaggc.cli.views.document import Document, Item
from disaggc.diagnostics.render import Report
from disaggc.diagnostics.render.json import DiagnosticItem, items
from disaggc.ir.plan import Ratio, Shape
from disaggc.perf.events.result import ClassRun, PoolRun, Spread, Throughput


class SpreadItem(Item):
    """A latency over the requests of one class, milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float


class ClassItem(Item):
    """What one class saw."""

    requests: int
    """Sent."""
    failed: int
    """Without a whole answer."""
    losses: dict[str, int]
    """Failed requests by reason: refused, too-long, lease-expired, replica-failed."""
    within_objectives: int
    """Requests within every objective of the class, the limit at the highest percentile taken for each."""
    ttft_ms: SpreadItem
    """Time to first token; time the client holds a request back is not in it."""
    itl_ms: SpreadItem
    """Between two tokens."""
    tpot_ms: SpreadItem
    """Mean between two tokens of one request."""
    e2e_ms: SpreadItem
    """The whole answer."""


class LoadItem(Item):
    """What clients did."""

    kind: Literal["spec", "bench", "trace"]
    """The spec's classes, a bench run or a recorded trace."""
    requests: int
    """Sent in all."""
    concurrency: float | None
    """Most in flight; null: no cap."""
    rate: float | None
    """Requests per second offered; null: as many as the cap allows."""


class ThroughputItem(Item):
    """Without ramp-up and tail."""

    from_s: float
    to_s: float
    req_per_s: float
    output_tok_per_s: float
    total_tok_per_s: float


class MomentItem(Item):
    """A pool at one time."""

    at_s: float
    running: float
    """Sequences in decode, prompts being computed in prefill."""
    waiting: float
    """Requests that wait in the pool."""
    kv: float
    """Share of KV memory in use."""
    up: int
    """Replicas that are up."""


class PoolItem(Item):
    """One pool over the run."""

    role: str
    replicas: int
    shape: Shape
    busy: float
    """Share of time its engines worked."""
    fill: float
    """Mean of running sequences over what may run; in prefill the same as busy."""
    preemptions: int
    """Sequences that gave their KV up and were computed again."""
    timeline: tuple[MomentItem, ...]


class RangeItem(Item):
    """80 % range: all constants at their cautious and at their hopeful ends."""

    low: float
    high: float


class RunItem(Item):
    """One run."""

    service: str
    mode: str
    """As given: plan, colocated or a ratio."""
    ratio: Ratio | None
    """Replicas per role; null when colocated."""
    load: LoadItem
    classes: dict[str, ClassItem]
    duration_s: float
    """Simulated time from the start to the last answer."""
    req_per_s: float
    output_tok_per_s: float
    """Over the whole run, as a bench reports it."""
    total_tok_per_s: float
    goodput_req_per_s: float
    """Requests within every objective, per second."""
    steady: ThroughputItem | None
    """Null where the run is ramp-up and tail only."""
    utilisation: dict[str, float]
    """By role, share of capacity in use."""
    ranges: dict[str, RangeItem]
    """By figure; empty without --range."""
    pools: tuple[PoolItem, ...]
    basis: Literal["prior", "tables", "calibrated", "measured"]
    """What the step times rest on."""
    seed: int


class SimulateDocument(Document):
    """Output of `disaggc simulate --format json`."""

    schema_: Annotated[Literal["disaggc.simulate/v1"], Field(alias="schema")] = "disaggc.simulate/v1"
    """Name and version of this format."""
    runs: tuple[RunItem, ...]
    """In the order asked for; empty where there are errors."""
    diagnostics: tuple[DiagnosticItem, ...]
    """Findings, sorted by position."""


def simulate_document(runs: Sequence[Simulated], report: Report) -> SimulateDocument:
    """All runs with what there is to say about the spec."""
    return SimulateDocument(
        runs=tuple(_run(done) for done in runs),
        diagnostics=tuple(DiagnosticItem.model_validate(item) for item in items(report)),
    )


def _run(done: Simulated) -> RunItem:
    run, load = done.run, done.offer
    pools = zip(run.pools, (pool.shape for pool in run.layout.pools), strict=True)
    return RunItem(
        service=done.service,
        mode=done.mode,
        ratio=ratio_of(run),
        load=LoadItem(
            kind=load.kind,
            requests=run.requests,
            concurrency=_finite(load.concurrency),
            rate=_finite(load.rate),
        ),
        classes={c.name: _class(c) for c in run.classes},
        duration_s=_rounded(run.whole.to_s),
        req_per_s=_rounded(run.whole.req_per_s),
        output_tok_per_s=_rounded(run.whole.output_tok_per_s),
        total_tok_per_s=_rounded(run.whole.total_tok_per_s),
        goodput_req_per_s=_rounded(run.goodput_req_per_s),
        steady=_throughput(run.steady),
        utilisation={role: _rounded(share) for role, share in run.utilisation.items()},
        ranges=_ranges(done),
        pools=tuple(_pool(pool, shape) for pool, shape in pools),
        basis=done.basis,
        seed=run.seed,
    )


def _ranges(done: Simulated) -> dict[str, RangeItem]:
    found: dict[str, RangeItem] = {}
    for figure in FIGURES:
        span = range_of(done, figure)
        if span is not None:
            found[figure] = RangeItem(low=_rounded(span[0]), high=_rounded(span[1]))
    return found


def _class(c: ClassRun) -> ClassItem:
    return ClassItem(
        requests=c.requests,
        failed=c.failed,
        losses=dict(c.losses),
        within_objectives=c.good,
        ttft_ms=_spread(c.ttft),
        itl_ms=_spread(c.itl),
        tpot_ms=_spread(c.tpot),
        e2e_ms=_spread(c.e2e),
    )


def _pool(pool: PoolRun, shape: Shape) -> PoolItem:
    return PoolItem(
        role=pool.role,
        replicas=pool.replicas,
        shape=shape,
        busy=_rounded(pool.busy),
        fill=_rounded(pool.fill),
        preemptions=pool.preemptions,
        timeline=tuple(
            MomentItem(
                at_s=_rounded(m.at_s), running=m.running, waiting=m.waiting, kv=_rounded(m.kv), up=m.up
            )
            for m in pool.timeline
        ),
    )


def _throughput(seen: Throughput | None) -> ThroughputItem | None:
    if seen is None:
        return None
    return ThroughputItem(
        from_s=_rounded(seen.from_s),
        to_s=_rounded(seen.to_s),
        req_per_s=_rounded(seen.req_per_s),
        output_tok_per_s=_rounded(seen.output_tok_per_s),
        total_tok_per_s=_rounded(seen.total_tok_per_s),
    )


def _spread(seen: Spread) -> SpreadItem:
    mean, p50, p90, p99 = (_rounded(1000 * x) for x in (seen.mean, seen.p50, seen.p90, seen.p99))
    return SpreadItem(mean=mean, p50=p50, p90=p90, p99=p99)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _rounded(value: float) -> float:
    """Six digits: more would only show rounding."""
    return float(f"{value:.6g}")
