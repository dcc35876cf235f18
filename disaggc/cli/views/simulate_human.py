"""Simulated runs for people: one table that compares them, then each run's pools over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from disaggc.cli.runs import Simulated, range_of, ratio_of
from disaggc.cli.views.text import Paint, table
from disaggc.perf.events.result import ClassRun, Moment, PoolRun
from disaggc.units import format_count, format_duration

_LEVELS = "_.:-=+*#"
_COLUMNS = 48
_DETAILED = 4
"""Runs up to which each one's pools are shown over time."""


def simulate_text(runs: Sequence[Simulated], *, paint: Paint) -> str:
    """Every run."""
    lines = [_head(runs, paint), "", *table(_rows(runs))]
    lines += [paint.notable(f"  {note}") for note in _notes(runs)]
    if len(runs) <= _DETAILED:
        for done in runs:
            lines += ["", *_over_time(done, paint)]
    return "\n".join(lines) + "\n"


def _head(runs: Sequence[Simulated], paint: Paint) -> str:
    first = runs[0]
    kinds = {"spec": "the spec's classes", "bench": "a bench run", "trace": "a recorded trace"}
    stream = first.offer.load.streams[0]
    what = f" of {stream.isl.mean:g} in, {stream.osl.mean:g} out" if first.offer.kind == "bench" else ""
    caps, rates = {r.offer.concurrency for r in runs}, {r.offer.rate for r in runs}
    if len(caps) == 1 and math.isfinite(first.offer.concurrency):
        what += f", {first.offer.concurrency:g} at once"
    if len(rates) == 1 and math.isfinite(first.offer.rate):
        what += f", {first.offer.rate:.3g}/s"
    head = paint.bold(f"simulated: {kinds[first.offer.kind]}{what}")
    return f"{head}, seed {first.run.seed} (step times: {first.basis})"


def _rows(runs: Sequence[Simulated]) -> Iterator[tuple[str, ...]]:
    services = len({r.service for r in runs}) > 1
    caps = len({r.offer.concurrency for r in runs}) > 1
    rates = len({r.offer.rate for r in runs}) > 1
    classes = any(len(r.run.classes) > 1 for r in runs)
    ends = any(r.ends for r in runs)
    yield (
        *(("service",) if services else ()), "mode",
        *(("concurrency",) if caps else ()), *(("rate",) if rates else ()), *(("class",) if classes else ()),
        "requests", "failed", "ttft p50", "p90", "p99", "itl p50", "p99", "e2e p50", "p99",
        "output tok/s", *(("range",) if ends else ()), "total tok/s", "steady total", "goodput", "in use",
    )  # fmt: skip
    for done in runs:
        for number, seen in enumerate(done.run.classes):
            first = number == 0
            yield (
                *((done.service if first else "",) if services else ()),
                _mode(done) if first else "",
                *((_number(done.offer.concurrency) if first else "",) if caps else ()),
                *((_number(done.offer.rate) if first else "",) if rates else ()),
                *((seen.name,) if classes else ()),
                *_latencies(seen),
                *(_totals(done, ends=ends) if first else ()),
            )


def _mode(done: Simulated) -> str:
    ratio = ratio_of(done.run)
    if done.mode == "plan":
        return f"plan ({ratio or 'colocated'})"
    if done.mode == "colocated":
        return f"{sum(pool.replicas for pool in done.run.layout.pools)} colocated"
    return done.mode


def _latencies(seen: ClassRun) -> tuple[str, ...]:
    return (
        f"{seen.requests:,}", f"{seen.failed:,}",
        *(format_duration(x) for x in (seen.ttft.p50, seen.ttft.p90, seen.ttft.p99)),
        *(format_duration(x) for x in (seen.itl.p50, seen.itl.p99)),
        *(format_duration(x) for x in (seen.e2e.p50, seen.e2e.p99)),
    )  # fmt: skip


def _totals(done: Simulated, *, ends: bool) -> tuple[str, ...]:
    run = done.run
    span = range_of(done, "output_tok_per_s")
    shown = "" if span is None else f"{format_count(span[0])} to {format_count(span[1])}"
    used = " ".join(f"{role[0].upper()} {share:.0%}" for role, share in run.utilisation.items())
    return (
        format_count(run.whole.output_tok_per_s),
        *((shown,) if ends else ()),
        format_count(run.whole.total_tok_per_s),
        "-" if run.steady is None else format_count(run.steady.total_tok_per_s),
        f"{run.goodput_req_per_s:.2f}/s",
        used,
    )


def _notes(runs: Sequence[Simulated]) -> Iterator[str]:
    words = {
        "refused": "refused by the proxy at its limit",
        "too-long": "longer than the context limit or the KV memory",
        "lease-expired": "whose KV prefill had given up",
        "replica-failed": "on a replica that failed",
    }
    for done in runs:
        for seen in done.run.classes:
            for reason, count in seen.losses.items():
                yield f"{_mode(done)}: {count:,} of {seen.requests:,} requests {words.get(reason, reason)}"
        preempted = sum(pool.preemptions for pool in done.run.pools)
        if preempted:
            yield f"{_mode(done)}: {preempted:,} preemptions, KV memory ran out"


def _over_time(done: Simulated, paint: Paint) -> Iterator[str]:
    run = done.run
    yield f"  {paint.bold(_mode(done))} over {format_duration(run.whole.to_s)}"
    rows = []
    for pool in run.pools:
        rows.append(
            (f"{pool.replicas} x {pool.role} {pool.shape}", f"busy {pool.busy:.0%}", *_line(pool, "running"))
        )
        if any(m.waiting for m in pool.timeline):
            rows.append(("", "", *_line(pool, "waiting")))
    held = [float(waiting) for _, waiting in run.held]
    if any(held):
        rows.append(("proxy", "", "waiting", _spark(held), f"at most {max(held):,.0f}"))
    yield from table(rows, indent="    ")


def _line(pool: PoolRun, what: str) -> tuple[str, str, str]:
    values = [_value(m, what) for m in pool.timeline]
    return what, _spark(values), f"at most {max(values, default=0.0):,.0f}"


def _value(moment: Moment, what: str) -> float:
    return moment.running if what == "running" else moment.waiting


def _spark(values: Sequence[float]) -> str:
    """Height by character, the mean of as many values as fall on each."""
    top = max(values, default=0.0)
    if not values or top <= 0:
        return _LEVELS[0]
    columns = min(_COLUMNS, len(values))
    out = ""
    for i in range(columns):
        part = values[i * len(values) // columns : max((i + 1) * len(values) // columns, 1)]
        mean = sum(part) / len(part)
        out += _LEVELS[min(len(_LEVELS) - 1, math.ceil(mean / top * (len(_LEVELS) - 1)))]
    return out


def _number(value: float) -> str:
    return "-" if math.isinf(value) else f"{value:g}"
