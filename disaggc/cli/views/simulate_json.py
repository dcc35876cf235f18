"""`disaggc.simulate/v1`: what `disaggc simulate --format json` prints; schemas/ holds the schema of these types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from disaggc.cli.runs import Simulated, ratio_of
from disaggc.cli.views.document import Document
from disaggc.cli.views.simulate_items import (
    ClassItem,
    LoadItem,
    MomentItem,
    PoolItem,
    RangeItem,
    RunItem,
    SpreadItem,
    ThroughputItem,
)
from disaggc.diagnostics.render import Report
from disaggc.diagnostics.render.json import DiagnosticItem, items
from disaggc.ir.plan import Shape
from disaggc.perf.events.result import ClassRun, PoolRun, Run, Spread, Throughput

_NOT_FIGURES = {"service", "mode", "ratio", "load", "ranges", "pools", "basis", "carried_from", "seed"}
"""What a run was, and its timelines."""


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
    return _item(done, done.run, _ranges([_item(done, run, {}) for run in (done.run, *done.ends)]))


def _item(done: Simulated, run: Run, ranges: dict[str, RangeItem]) -> RunItem:
    load = done.offer
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
            left_out=load.left_out,
        ),
        classes={c.name: _class(c) for c in run.classes},
        duration_s=_rounded(run.whole.to_s),
        req_per_s=_rounded(run.whole.req_per_s),
        output_tok_per_s=_rounded(run.whole.output_tok_per_s),
        total_tok_per_s=_rounded(run.whole.total_tok_per_s),
        goodput_req_per_s=_rounded(run.goodput_req_per_s),
        steady=_throughput(run.steady),
        utilisation={role: _rounded(share) for role, share in run.utilisation.items()},
        ranges=ranges,
        pools=tuple(_pool(pool, shape) for pool, shape in pools),
        basis=done.basis,
        carried_from=done.carried_from,
        seed=run.seed,
    )


def _ranges(items: Sequence[RunItem]) -> dict[str, RangeItem]:
    """Of every figure that all of them have; nothing of a single one."""
    if len(items) < 2:
        return {}
    seen = [dict(_figures(item.model_dump(exclude=_NOT_FIGURES))) for item in items]
    shared = [path for path in seen[0] if all(path in figures for figures in seen)]
    return {
        path: RangeItem(low=min(f[path] for f in seen), high=max(f[path] for f in seen)) for path in shared
    }


def _figures(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number inside, under its dotted path."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _figures(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, int | float) and not path.endswith(".requests"):
        yield path, float(value)


def _class(c: ClassRun) -> ClassItem:
    return ClassItem(
        requests=c.requests,
        failed=c.failed,
        losses=dict(c.losses),
        prefilled_locally=c.local,
        cached_share=_rounded(c.cached),
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
