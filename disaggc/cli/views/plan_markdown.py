"""A plan for a pull request: what would change and what it would do, as GitHub-flavoured tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from disaggc.cli.views.plan_human import IN_METRIC, OVERLOADED, overloaded_at_worst, ratio_text
from disaggc.cli.views.text import basis_text, count, duration_ms, factor
from disaggc.ir.changes import Change
from disaggc.ir.plan import DeploymentPlan, ServicePlan

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#!|~&])")


def plan_markdown(plan: DeploymentPlan, changed: tuple[Change, ...]) -> str:
    """The whole plan."""
    lines = [line for service in plan.services for line in _service(service)]
    if plan.provenance.step_times is not None:
        lines += [f"Step times of basis `tables`: {_escaped(plan.provenance.step_times)}.", ""]
    lines += ["### Changes", ""]
    if changed:
        lines += _table([("action", "address", "cause"), *((c.action, c.address, c.cause) for c in changed)])
    else:
        lines.append("None: what was built last is this plan.")
    return "\n".join(lines) + "\n"


def _service(service: ServicePlan) -> Iterator[str]:
    expected = service.predicted
    yield f"## {_escaped(service.name)}: {ratio_text(service)}"
    yield ""
    rows: list[Sequence[str]] = [("pool", "replicas", "accelerator", "shape", "nodes")]
    for pool in service.pools:
        nodes = dict.fromkeys(slot.node for replica in pool.replicas for slot in replica.slots)
        rows.append(
            (pool.address, str(len(pool.replicas)), pool.accelerator, str(pool.shape), ", ".join(nodes))
        )
    yield from _table(rows)
    latency: list[Sequence[str]] = [("class", "TTFT p90", "ITL p99", "E2E p50")]
    for name, seen in expected.classes.items():
        numbers = (seen.ttft_ms.p90, seen.itl_ms.p99, seen.e2e_ms.p50)
        latency.append((name, *(duration_ms(number) for number in numbers)))
    yield from _table(latency)
    per_cost = expected.tokens_per_cost
    cost = f", {count(per_cost)} tok/{_escaped(expected.currency or '')}" if per_cost is not None else ""
    yield f"Output {count(expected.output_tok_per_s)} tok/s{cost}, bottleneck {_escaped(expected.bottleneck)}."
    if overloaded_at_worst(expected):
        yield f"{OVERLOADED[0].upper()}{OVERLOADED[1:]}."
    if not expected.meets_objectives:
        yield "Not all objectives are met at the predicted value."
    if service.comparison is not None:
        other = "disaggregated" if service.mode == "colocated" else "colocated"
        margin = f"{factor(service.comparison.margin)} {IN_METRIC[service.comparison.metric]}"
        yield f"Against {other}: {margin}, {service.comparison.verdict}."
    basis = basis_text(expected.output_tok_per_s.basis, expected.carried_from)
    yield f"Ranges hold 80 % of cases; basis: {_escaped(basis)}."
    yield ""


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *rest = rows
    lines = [_row(head), "|" + " --- |" * len(head), *(_row(row) for row in rest)]
    return [*lines, ""]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.replace("\n", " ").replace("\r", " "))
