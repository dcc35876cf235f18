"""Why a plan is as it is, for people: the binding limit, memory, load, KV transfer, alternatives, lifecycle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from disaggc.cli.sensitive import EndingRun, Sensitive
from disaggc.cli.views.plan_human import against, alternatives, ratio_text
from disaggc.cli.views.sensitive_human import sensitivity_rows, unanswered
from disaggc.cli.views.terms_human import terms_lines
from disaggc.cli.views.text import Paint, basis_text, table
from disaggc.ir.plan import DeploymentPlan, KvLink, Pool, Role, ServicePlan, Timings
from disaggc.units import format_bytes, format_duration, format_speed

_LIMITS = {
    "prefill": "prefill compute is full: more prefill replicas would serve more",
    "decode": "decode is full: more decode replicas would serve more",
    "concurrency": "the clients' cap on requests in flight binds; faster replicas would serve more, more of them too",
    "rate": "everything that is offered is served; the layout has room",
    "kv-memory": "memory for KV is full: fewer requests run at once than decode could compute",
    "kv-transfer": "the network between prefill and decode is full",
}


def explain_text(plan: DeploymentPlan, changes: Mapping[str, Sensitive], *, paint: Paint) -> str:
    """Every service, a blank line between."""
    return (
        "\n\n".join(
            "\n".join(_service(service, changes.get(service.name), paint)) for service in plan.services
        )
        + _source(plan)
        + "\n"
    )


def _source(plan: DeploymentPlan) -> str:
    """Whose measured step times it rests on."""
    source = plan.provenance.step_times
    return "" if source is None else f"\n\nstep times of basis `tables`: {source}"


def _run(service: ServicePlan, run: EndingRun) -> Iterator[str]:
    """What a run that ends shows beside the steady state that the plan states."""
    yield f"  a run of {run.requests:,} requests, from an empty cluster to the last answer"
    rows: list[tuple[str, ...]] = [("", "the run", "steady state")]
    for name, found in run.predicted.classes.items():
        steady = service.predicted.classes[name]
        pairs = (
            ("first token p50", found.ttft_ms.p50, steady.ttft_ms.p50),
            ("first token p99", found.ttft_ms.p99, steady.ttft_ms.p99),
            ("end to end p50", found.e2e_ms.p50, steady.e2e_ms.p50),
        )
        rows += [
            (f"{label}, {name}", *(format_duration(seen.value / 1000) for seen in both))
            for label, *both in pairs
        ]
    total = (f"{seen.total_tok_per_s.value:,.0f}" for seen in (run.predicted, service.predicted))
    rows.append(("tok/s in all", *total))
    yield from table(rows, indent="    ")


def _service(service: ServicePlan, changes: Sensitive | None, paint: Paint) -> Iterator[str]:
    limit = service.predicted.bottleneck
    yield paint.bold(f"{service.name}: {ratio_text(service)}")
    yield f"  what binds: {limit}: {_LIMITS.get(limit, 'see the terms below')}"
    expected = service.predicted
    yield f"  basis of its predictions: {basis_text(expected.output_tok_per_s.basis, expected.carried_from)}"
    yield from against(service, paint)
    if service.prefill_doubling_rate is not None:
        yield f"  one more prefill node pays from {service.prefill_doubling_rate:.2f} requests/s"
    for pool in service.pools:
        yield ""
        yield from _pool(pool, service.predicted.utilisation.get(pool.role.value))
    if service.links:
        yield ""
        yield "  KV transfer, one mean request"
        yield from table((_link(link) for link in service.links), indent="    ")
        lease = f"; lease {service.connector.lease_s} s" if service.connector else ""
        yield f"    prompts under {service.skip_prefill_below:,} uncached tokens are prefilled by decode{lease}"
    if changes is not None and changes.terms is not None:
        yield ""
        yield from terms_lines(changes.terms)
    if service.alternatives:
        yield ""
        yield from table(alternatives(service.alternatives))
    if changes is not None:
        yield ""
        yield from table(sensitivity_rows(changes))
        yield from (f"  {line}" for line in unanswered(changes))
        if changes.run is not None:
            yield ""
            yield from _run(service, changes.run)


def _pool(pool: Pool, used: float | None) -> Iterator[str]:
    memory, timings = pool.memory, pool.timings
    name = pool.address.partition("/")[2]
    yield f"  {name}: {len(pool.replicas)} x {pool.shape} on {pool.accelerator}"
    overhead = f"{format_bytes(memory.overhead_low)} to {format_bytes(memory.overhead_high)}"
    rows = [
        (
            "each",
            f"{pool.load_per_replica:.3g} requests/s and {pool.operating_batch:.0f} at once",
        ),
        (
            "memory",
            f"{format_bytes(memory.usable)} of {format_bytes(memory.total)} usable on each accelerator",
        ),
        ("", f"{format_bytes(memory.weights)} weights, {overhead} activations and graphs"),
        ("KV", f"{memory.kv_tokens:,} to {memory.kv_tokens_high:,} tokens, {memory.sequences:,} sequences"),
        ("stop", _stop(timings)),
        ("because", ", ".join(pool.because) or "the compiler's defaults"),
    ]
    if used is not None:
        share = f"{used:.0%} of the time" if pool.role is Role.PREFILL else f"{used:.0%} in use"
        rows.insert(1, ("busy" if pool.role is Role.PREFILL else "slots", share))
    yield from table(rows, indent="    ")


def _stop(timings: Timings) -> str:
    parts = f"{timings.pre_stop_s} s before SIGTERM, {timings.shutdown_s} s drain, {timings.worker_exit_s} s workers"
    return f"{parts}; killed after {timings.grace_s} s"


def _link(link: KvLink) -> tuple[str, ...]:
    low, high = link.bytes_per_request / link.bandwidth, link.bytes_per_request / link.bandwidth_low
    return (
        f"{link.prefill} -> {link.decode}",
        format_bytes(link.bytes_per_request),
        f"{format_speed(link.bandwidth)} over {link.transport} (at least {format_speed(link.bandwidth_low)})",
        f"{format_duration(low)} to {format_duration(high)}",
    )
