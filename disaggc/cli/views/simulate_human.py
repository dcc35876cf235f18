"""Simulated runs for people: one table that compares them, then each run's pools over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from disaggc.cli.runs import Simulated, ratio_of
from disaggc.cli.views.text import Paint, basis_text, table
from disaggc.perf.events.result import ClassRun, Moment, PoolRun, Run
from disaggc.units import format_count, format_duration

_LEVELS = "_.:-=+*#"
_COLUMNS = 48
USE = {True: "busy", False: "slots"}
"""Of prefill or not: share of time in which it computes, share of the sequences that may run that do."""
_KV_SHOWN = 0.5
"""Share of KV memory from which its use is shown."""
_DETAILED = 4
"""Runs up to which each one's pools are shown over time."""


def simulate_text(runs: Sequence[Simulated], *, paint: Paint) -> str:
    """Every run."""
    cut = {done.offer.left_out: None for done in runs if done.offer.left_out is not None}
    lines = [_head(runs, paint), *(f"  {what}" for what in cut), "", *table(_rows(runs))]
    if any(done.ends for done in runs):
        lines.append(
            "  low, high: 80 % range, from step times at the hopeful and the cautious ends of their constants"
        )
    lines += [paint.notable(f"  {note}") for note in _notes(runs)]
    if len(runs) <= _DETAILED:
        for done in runs:
            lines += ["", *_over_time(done, _named(done, runs), paint)]
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
    return f"{head}, seed {first.run.seed} (step times: {basis_text(first.basis, first.carried_from)})"


def _rows(runs: Sequence[Simulated]) -> Iterator[tuple[str, ...]]:
    """A line for each class of each run; with ranges, two more that hold the ends of every number."""
    labels = _labels(runs)
    classes = any(len(r.run.classes) > 1 for r in runs)
    yield (
        *(title for title, _ in labels), *(("class",) if classes else ()), "requests",
        *(title for title, _, _ in _OF_CLASS), *(title for title, _, _ in _OF_RUN), "in use",
    )  # fmt: skip
    for done in runs:
        for number, seen in enumerate(done.run.classes):
            first = number == 0
            yield (
                *(label(done) if first else "" for _, label in labels),
                *((seen.name,) if classes else ()),
                f"{seen.requests:,}",
                *_cells(done.run, number, first=first),
            )
            for end, pick in (("low", min), ("high", max)) if done.ends else ():
                blank = ("",) * (len(labels) - 1 + classes)
                yield (f"  {end}", *blank, "", *_ends(done, number, pick, first=first))


def _labels(runs: Sequence[Simulated]) -> list[tuple[str, Callable[[Simulated], str]]]:
    """What tells the runs apart: the mode, and whatever else varies."""
    found: list[tuple[str, Callable[[Simulated], str]]] = [("mode", _mode)]
    if len({r.service for r in runs}) > 1:
        found.append(("service", lambda r: r.service))
    if len({r.offer.concurrency for r in runs}) > 1:
        found.append(("concurrency", lambda r: _number(r.offer.concurrency)))
    if len({r.offer.rate for r in runs}) > 1:
        found.append(("rate", lambda r: _number(r.offer.rate)))
    return found


def _mode(done: Simulated) -> str:
    ratio = ratio_of(done.run)
    if done.mode == "plan":
        return f"plan ({ratio or 'colocated'})"
    if done.mode == "colocated":
        return f"{sum(pool.replicas for pool in done.run.layout.pools)} colocated"
    return done.mode


_Figure = Callable[[Run], float | None]
_OF_CLASS: tuple[tuple[str, Callable[[ClassRun], float], Callable[[float], str]], ...] = (
    ("failed", lambda c: float(c.failed), lambda x: f"{x:,.0f}"),
    ("ttft p50", lambda c: c.ttft.p50, format_duration),
    ("p90", lambda c: c.ttft.p90, format_duration),
    ("p99", lambda c: c.ttft.p99, format_duration),
    ("itl p50", lambda c: c.itl.p50, format_duration),
    ("p99", lambda c: c.itl.p99, format_duration),
    ("e2e p50", lambda c: c.e2e.p50, format_duration),
    ("p99", lambda c: c.e2e.p99, format_duration),
)
_OF_RUN: tuple[tuple[str, _Figure, Callable[[float], str]], ...] = (
    ("output tok/s", lambda r: r.whole.output_tok_per_s, format_count),
    ("total tok/s", lambda r: r.whole.total_tok_per_s, format_count),
    ("steady total", lambda r: None if r.steady is None else r.steady.total_tok_per_s, format_count),
    ("goodput", lambda r: r.goodput_req_per_s, lambda x: f"{x:.2f}/s"),
)


def _cells(run: Run, number: int, *, first: bool) -> Iterator[str]:
    yield from _of_class([run.classes[number]], max)
    if not first:
        return
    for _, figure, shown in _OF_RUN:
        value = figure(run)
        yield "-" if value is None else shown(value)
    yield _in_use(run.utilisation)


def _of_class(seen: Sequence[ClassRun], pick: Callable[[Iterable[float]], float]) -> Iterator[str]:
    """Its cells; where one of the runs answered nothing there is no latency to tell."""
    answered = all(c.requests > c.failed for c in seen)
    for title, of, shown in _OF_CLASS:
        yield shown(pick([of(c) for c in seen])) if answered or title == "failed" else "-"


def _ends(
    done: Simulated, number: int, pick: Callable[[Iterable[float]], float], *, first: bool
) -> Iterator[str]:
    """The same cells at one end of their ranges."""
    runs = (done.run, *done.ends)
    yield from _of_class([r.classes[number] for r in runs], pick)
    if not first:
        return
    for _, figure, shown in _OF_RUN:
        values = [value for r in runs if (value := figure(r)) is not None]
        yield shown(pick(values)) if len(values) == len(runs) else "-"
    yield _in_use({role: pick([r.utilisation[role] for r in runs]) for role in done.run.utilisation})


def _in_use(utilisation: Mapping[str, float]) -> str:
    """Prefill by time, the others by slots: a prefill engine has one prompt's step at a time, a decode engine many."""
    return ", ".join(
        f"{role[0].upper()} {USE[role == 'prefill']} {share:.0%}" for role, share in utilisation.items()
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
                yield f"{_named(done, runs)}: {count:,} of {seen.requests:,} requests {words.get(reason, reason)}"
            if seen.local and ratio_of(done.run) is not None:
                yield (
                    f"{_named(done, runs)}: {seen.local:,} of {seen.requests:,} prompts computed by decode, "
                    "too short to hand over"
                )
            if seen.cached:
                yield f"{_named(done, runs)}: prefix caches had {seen.cached:.0%} of the prompt tokens"
        preempted = sum(pool.preemptions for pool in done.run.pools)
        if preempted:
            yield f"{_named(done, runs)}: {preempted:,} preemptions, KV memory ran out"


def _named(done: Simulated, runs: Sequence[Simulated]) -> str:
    """The run by everything that tells it from the others: `2P1D, concurrency 64`."""
    first, *others = _labels(runs)
    return ", ".join([first[1](done), *(f"{title} {label(done)}" for title, label in others)])


def _over_time(done: Simulated, name: str, paint: Paint) -> Iterator[str]:
    run = done.run
    yield f"  {paint.bold(name)} over {format_duration(run.whole.to_s)}"
    rows = []
    for pool in run.pools:
        rows.append((f"{pool.replicas} x {pool.role} {pool.shape}", _used(pool), *_line(pool, "running")))
        if any(m.waiting for m in pool.timeline):
            rows.append(("", "", *_line(pool, "waiting")))
        full = max((m.kv for m in pool.timeline), default=0.0)
        if full >= _KV_SHOWN:
            rows.append(("", "", "KV", _spark([m.kv for m in pool.timeline]), f"at most {full:.0%}"))
    held = [float(waiting) for _, waiting in run.held]
    if any(held):
        rows.append(("proxy", "", "waiting", _spark(held), f"at most {max(held):,.0f}"))
    yield from table(rows, indent="    ")


def _used(pool: PoolRun) -> str:
    prefill = pool.role == "prefill"
    return f"{USE[prefill]} {pool.busy if prefill else pool.fill:.0%}"


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
