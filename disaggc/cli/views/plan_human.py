"""A plan for people: ratio, pools, what to expect and how sure that is, against colocated, alternatives, changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from disaggc.cli.views.text import Paint, basis_text, count, duration_ms, factor, table
from disaggc.ir.changes import Change
from disaggc.ir.plan import Alternative, DeploymentPlan, Expectation, ServicePlan, Yardstick

_MARKS = {"create": "+", "update": "~", "replace": "!", "remove": "-"}
_SHOWN_ALTERNATIVES = 8
_ALL = 1 - 1e-3
OVERLOADED = (
    "at the cautious end this layout does not carry the offered rate: queues grow, hence the upper latencies"
)
IN_METRIC: dict[Yardstick, str] = {
    "total_tok_per_s": "in throughput",
    "tokens_per_cost": "in tokens per cost",
    "e2e": "in e2e speed",
}
"""After a factor above 1 = better: a latency is inverted, so that it reads as a speed."""


def plan_text(plan: DeploymentPlan, changed: tuple[Change, ...], *, paint: Paint) -> str:
    """The whole plan."""
    blocks = ["\n".join(_service(service, paint)) for service in plan.services]
    source = plan.provenance.step_times
    if source is not None:
        blocks.append(f"step times of basis `tables`: {source}")
    return "\n\n".join([*blocks, "\n".join(_changes(changed, paint)), _solver(plan)]) + "\n"


def ratio_text(service: ServicePlan) -> str:
    """`1P4D`, `5 colocated`, `4 flexible`."""
    if service.ratio is not None and service.mode == "disaggregated":
        return str(service.ratio)
    return f"{sum(len(pool.replicas) for pool in service.pools)} {service.mode}"


def _service(service: ServicePlan, paint: Paint) -> Iterator[str]:
    head = f"{service.name}: {ratio_text(service)}"
    yield f"{paint.bold(head)}  {service.model.id}, vLLM {service.engine.version}"
    yield ""
    yield from table(_pools(service))
    yield ""
    yield from _expected(service.predicted)
    yield ""
    yield from against(service, paint)
    if service.prefill_doubling_rate is not None:
        yield f"  one more prefill node pays from {service.prefill_doubling_rate:.2f} requests/s"
    if service.alternatives:
        yield ""
        yield from table(alternatives(service.alternatives))


def _pools(service: ServicePlan) -> Iterator[tuple[str, ...]]:
    yield ("pool", "replicas", "accelerators", "shape", "nodes")
    for pool in service.pools:
        nodes = dict.fromkeys(slot.node for replica in pool.replicas for slot in replica.slots)
        name = pool.address.partition("/")[2]
        each = f"{pool.shape.accelerators} x {pool.accelerator}"
        yield (name, str(len(pool.replicas)), each, str(pool.shape), " ".join(nodes))


def _expected(expected: Expectation) -> Iterator[str]:
    basis = basis_text(expected.output_tok_per_s.basis, expected.carried_from)
    yield f"  predicted, with 80 % range (basis: {basis})"
    rows = [("class", "metric", "p50", "p90", "p99")]
    for name, seen in expected.classes.items():
        for metric, of in (("ttft", seen.ttft_ms), ("itl", seen.itl_ms), ("e2e", seen.e2e_ms)):
            rows.append((name, metric, duration_ms(of.p50), duration_ms(of.p90), duration_ms(of.p99)))
    yield from table(rows)
    totals = [("output", f"{count(expected.output_tok_per_s)} tok/s")]
    totals.append(("total", f"{count(expected.total_tok_per_s)} tok/s"))
    if expected.tokens_per_cost is not None:
        totals.append(("per cost", f"{count(expected.tokens_per_cost)} tok/{expected.currency}"))
    totals.append(("bottleneck", expected.bottleneck))
    if not expected.meets_objectives:
        totals.append(("objectives", "not all met at the predicted value"))
    yield from table(totals)
    if overloaded_at_worst(expected):
        yield f"  {OVERLOADED}"


def overloaded_at_worst(expected: Expectation) -> bool:
    """Whether everything offered is served at the predicted value, but not at the cautious end of the range."""
    served = expected.output_tok_per_s
    return expected.bottleneck == "rate" and served.low < served.value * _ALL


def against(service: ServicePlan, paint: Paint) -> Iterator[str]:
    """The chosen mode against the other, and whether that is decided."""
    if service.comparison is None:
        return
    other = "disaggregated" if service.mode == "colocated" else "colocated"
    verdict = service.comparison.verdict
    shown = paint.good(verdict) if verdict == "decided" else paint.notable(verdict)
    yield f"  against {other}: {factor(service.comparison.margin)} {IN_METRIC[service.comparison.metric]}, {shown}"


def alternatives(listed: tuple[Alternative, ...]) -> Iterator[tuple[str, ...]]:
    """Rows of a table: layouts that were weighed, best first; shapes and metric only where they tell rows apart."""
    shown = listed[:_SHOWN_ALTERNATIVES]
    split = len({_shapes(other) for other in shown if other.mode == "disaggregated"}) > 1
    mixed = any(other.metric != "total_tok_per_s" for other in shown)
    yield (
        "alternative",
        *(("shapes",) if split else ()),
        "against this plan",
        "output tok/s",
        "bottleneck",
        "objectives",
    )
    for other in shown:
        disaggregated = other.ratio is not None and other.mode == "disaggregated"
        yield (
            str(other.ratio) if disaggregated else f"{other.replicas} {other.mode}",
            *((_shapes(other),) if split else ()),
            factor(other.relative) + (f" {IN_METRIC[other.metric]}" if mixed else ""),
            count(other.predicted.output_tok_per_s),
            other.predicted.bottleneck,
            "met" if other.feasible else "missed",
        )


def _shapes(other: Alternative) -> str:
    return ", ".join(str(shape) for shape in other.shapes.values())


def _changes(changed: tuple[Change, ...], paint: Paint) -> Iterable[str]:
    if not changed:
        return ["no changes: what was built last is this plan"]
    colours = {"create": paint.good, "update": paint.notable, "replace": paint.notable, "remove": paint.bad}
    rows = table([(f"{_MARKS[c.action]} {c.action}", c.address, _clipped(c.cause)) for c in changed])
    painted = [colours[c.action](row) for c, row in zip(changed, rows, strict=True)]
    counts = [f"{sum(c.action == action for c in changed)} to {action}" for action in _MARKS]
    return ["changes", *painted, ", ".join(text for text in counts if not text.startswith("0 "))]


def _clipped(text: str, limit: int = 100) -> str:
    return text if len(text) <= limit else text[: limit - 3].rstrip(", ") + "..."


def _solver(plan: DeploymentPlan) -> str:
    found = plan.solver
    if found.status == "locked":
        return "solver: layout kept from disaggc.lock"
    return f"solver: {found.status}, gap {found.gap:.2%}"
