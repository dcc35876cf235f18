"""What a prediction is made of, for people: addends of medians, tails, what each station could serve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from disaggc.cli.views.text import table
from disaggc.perf.estimate import Term
from disaggc.perf.terms import ClassTerms, PoolOutput, Terms
from disaggc.units import format_duration

_SHOWN = 0.0005
"""Share of its sum from which an addend is worth a row."""


def terms_lines(terms: Terms) -> Iterator[str]:
    """Throughput first, then every class."""
    yield "  what throughput is made of"
    yield from table(_throughput(terms), indent="    ")
    for one in terms.classes:
        yield ""
        yield f"  what the medians of {one.name} are made of"
        yield from table(_class(one, terms.stalled), indent="    ")


def _throughput(terms: Terms) -> Iterator[tuple[str, ...]]:
    offered = (
        "as many as the clients' cap lets through"
        if terms.offered_per_s is None
        else f"{terms.offered_per_s:.3g}/s offered"
    )
    yield ("served", f"{terms.served_per_s:.3g} requests/s, {offered}")
    for pool in terms.output:
        yield ("", _pool(pool))
    for station in terms.stations:
        yield (
            "",
            f"{station.name} alone could serve {station.requests_per_s:.3g}/s: load {station.load:.0%}",
        )


def _pool(pool: PoolOutput) -> str:
    return (
        f"{pool.replicas} x {pool.batch:.3g} sequences, a step of {format_duration(pool.step_s)}: "
        f"{pool.tok_per_s:,.0f} output tok/s"
    )


def _class(one: ClassTerms, stalled: float) -> Iterator[tuple[str, ...]]:
    yield from _sum("first token", one.ttft)
    yield from _tail("p99", one.ttft_tail, "as squares")
    yield from _sum("token", one.itl)
    yield from _tail("p99", one.itl_tail, f"{stalled:.1%} of the steps carry a prompt")
    yield from _sum("end to end", one.e2e)


def _sum(name: str, parts: tuple[Term, ...]) -> Iterator[tuple[str, ...]]:
    whole = sum(part.value for part in parts)
    yield (f"{name} p50", format_duration(whole), "")
    for part in sorted(parts, key=lambda part: -part.value):
        if part.value >= _SHOWN * whole:
            yield (f"  {part.name}", format_duration(part.value), f"{part.value / whole:.0%}")


def _tail(name: str, parts: Iterable[Term], how: str) -> Iterator[tuple[str, ...]]:
    found = [f"{part.name} {format_duration(part.value)}" for part in parts if part.value > 0]
    if found:
        yield (f"  {name} adds", ", ".join(found), f"({how})")
