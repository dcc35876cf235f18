"""What `simulate` lets clients do: the spec's classes, `--bench ISL/OSL/CON/RATE`, `--trace FILE`, sweeps over them.

Text of the command line in, loads out. Knows no layout.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from disaggc.cli.trace_files import Recording
from disaggc.perf.events import Failure, Load, Offered, Ramp, Stream
from disaggc.perf.layout import Layout
from disaggc.resolve.lengths import constant
from disaggc.resolve.model import ClassLoad, ResolvedService
from disaggc.units import parse_duration

_TOKENS = re.compile(r"(\d+(?:\.\d+)?)([kK]?)")
_FAULT = re.compile(r"(prefill|decode|colocated)/(\d{1,4})@([^+]{1,20})\+(.{1,20})")
_LARGEST = 10_000_000
_MOST_POINTS = 64
LONGEST_RUN_S = 10 * 365 * 86400.0
"""Ten years: requests that take longer to arrive are meant in another unit."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of `vllm bench serve`: lengths, cap (infinite: none), requests/s (infinite: all at once).

    jitter: lengths lie evenly between this share of the stated ones and the whole. ramp: stands for the rate.
    """

    isl: int
    osl: int
    concurrency: float
    rate: float
    burstiness: float = 1.0
    jitter: float = 1.0
    ramp: Ramp | None = None


@dataclass(frozen=True, slots=True)
class Offer:
    """A load for one service, and the service with the classes its memory is sized for.

    left_out: what of a trace is not in it; None where nothing is.
    """

    kind: str
    service: ResolvedService
    load: Load
    concurrency: float
    rate: float
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class Sweep:
    """What varies. values: empty for the ratio."""

    of: str
    values: tuple[float, ...]


def parse_bench(text: str) -> Bench:
    """`1024/8192/480/2`, `8k/1k/160`, `1024/1024/inf/4`; ValueError says what is wrong."""
    parts = text.split("/")
    if not 2 <= len(parts) <= 4:
        raise ValueError("ISL/OSL/CON/RATE is wanted, e.g. 1024/8192/480/2")
    isl, osl = (_tokens(part) for part in parts[:2])
    concurrency = _positive(parts[2]) if len(parts) > 2 else math.inf
    if math.isfinite(concurrency) and (concurrency < 1 or concurrency != int(concurrency)):
        raise ValueError(f"the concurrency `{parts[2][:20]}` is not a whole number of requests")
    return Bench(isl, osl, concurrency, _positive(parts[3]) if len(parts) > 3 else math.inf)


def parse_ramp(text: str) -> Ramp:
    """`1:20`, `1:20:exponential`: requests/s at the start and the end; ValueError says what is wrong."""
    start, _, rest = text.partition(":")
    end, _, strategy = rest.partition(":")
    if strategy not in {"", "linear", "exponential"} or not end:
        raise ValueError("START:END or START:END:exponential in requests/s is wanted, e.g. 1:20")
    rates = _positive(start), _positive(end)
    if not all(map(math.isfinite, rates)):
        raise ValueError("the rates must be finite")
    return Ramp(*rates, "exponential" if strategy == "exponential" else "linear")


def parse_sweep(text: str) -> Sweep:
    """`ratio`, `concurrency=32,64,128`, `rate=1,2,4`; ValueError says what is wrong."""
    name, given, listed = text.partition("=")
    if name == "ratio" and not given:
        return Sweep("ratio", ())
    if name not in ("concurrency", "rate") or not listed:
        raise ValueError("`ratio`, `concurrency=32,64,128` or `rate=1,2,4` is wanted")
    values = tuple(_positive(part) for part in listed.split(","))
    if len(values) > _MOST_POINTS or not all(map(math.isfinite, values)):
        raise ValueError(f"at most {_MOST_POINTS} finite values are wanted")
    if name == "concurrency" and any(v != int(v) or v < 1 for v in values):
        raise ValueError("a concurrency is a whole number of requests")
    return Sweep(name, values)


@dataclass(frozen=True, slots=True)
class Fault:
    """A replica that ends at `at_s` for `down_s`. index: among the replicas of its role."""

    role: str
    index: int
    at_s: float
    down_s: float

    def __str__(self) -> str:
        """`decode/0`."""
        return f"{self.role}/{self.index}"


def parse_fault(text: str) -> Fault:
    """`decode/0@10min+2min`; ValueError says what is wrong."""
    found = _FAULT.fullmatch(text)
    if found is None:
        raise ValueError("ROLE/INDEX@TIME+DOWN is wanted, e.g. decode/0@10min+2min")
    role, index, at, down = found.groups()
    at_s, down_s = parse_duration(at), parse_duration(down)
    if not (0 <= at_s <= LONGEST_RUN_S and 0 < down_s <= LONGEST_RUN_S):
        raise ValueError(
            "a time from the start of the run and a time down above zero are wanted, below ten years"
        )
    return Fault(role, int(index), at_s, down_s)


def struck(offer: Offer, layout: Layout, faults: tuple[Fault, ...]) -> Offer | Fault:
    """The load with these failures, or the one that names a replica the layout does not have."""
    places = [(p.role.value, i, n) for i, p in enumerate(layout.pools) for n in range(p.replicas)]
    failures = []
    for fault in faults:
        of_role = [(pool, n) for role, pool, n in places if role == fault.role]
        if fault.index >= len(of_role):
            return fault
        pool, number = of_role[fault.index]
        failures.append(Failure(fault.at_s, pool, number, fault.down_s))
    return replace(offer, load=replace(offer.load, failures=tuple(failures)))


def _tokens(text: str) -> int:
    found = _TOKENS.fullmatch(text.strip())
    tokens = float(found.group(1)) * (1024 if found.group(2) else 1) if found else 0.0
    if not 1 <= tokens <= _LARGEST:
        raise ValueError(f"`{text[:20]}` is not a number of tokens (1 to {_LARGEST:,}, `8k` is 8192)")
    return round(tokens)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value > 0 or (math.isfinite(value) and value > _LARGEST):
        raise ValueError(f"`{text[:20]}` is not a number above 0 and at most {_LARGEST:,}")
    return value


def spec_offer(service: ResolvedService, requests: int | None) -> Offer:
    """The spec's own classes."""
    caps = [c.concurrency for c in service.classes]
    rates = [c.rate for c in service.classes]
    return Offer(
        "spec", service, Load.of_service(service, requests),
        math.inf if None in caps else float(sum(c or 0 for c in caps)),
        math.inf if None in rates else sum(r or 0.0 for r in rates),
    )  # fmt: skip


def bench_offer(service: ResolvedService, bench: Bench, requests: int | None) -> Offer:
    """One bench run; objectives are those of the spec's class where it has one only."""
    bounds = service.classes[0].bounds if len(service.classes) == 1 else ()
    fastest = max(bench.ramp.start, bench.ramp.end) if bench.ramp else bench.rate
    capped, paced = math.isfinite(bench.concurrency), math.isfinite(fastest)
    load = Load.bench(
        bench.isl, bench.osl, concurrency=bench.concurrency, rate=bench.rate, requests=requests,
        burstiness=bench.burstiness, jitter=bench.jitter, ramp=bench.ramp,
    )  # fmt: skip
    shown = ClassLoad(
        "bench", constant(float(bench.isl)), constant(float(bench.osl)),
        rate=fastest if paced else None,
        concurrency=int(bench.concurrency) if capped else (None if paced else load.requests),
        arrival_cv=bench.burstiness**-0.5, prefix_hit=0.0, bounds=bounds, priority=0,
    )  # fmt: skip
    streams = tuple(replace(stream, bounds=bounds) for stream in load.streams)
    sized = replace(service, classes=(shown,))
    return Offer(
        "bench", sized, Load(streams), bench.concurrency, bench.rate if bench.ramp is None else math.inf
    )


def trace_offer(service: ResolvedService, recording: Recording, requests: int | None) -> Offer:
    """A trace as it was recorded; its classes take the spec's objectives where names agree or there is one only."""
    kept = sorted(recording.requests, key=lambda r: r.at_s)[:requests]
    first = kept[0].at_s
    by_class: dict[str, list[Offered]] = {}
    for r in kept:
        name = r.workload or (service.classes[0].name if len(service.classes) == 1 else "trace")
        by_class.setdefault(name, []).append(Offered(r.at_s - first, r.inputs, r.outputs, blocks=r.blocks))
    known = {c.name: c for c in service.classes}
    streams = []
    for name, offered in by_class.items():
        like = known.get(name) or (service.classes[0] if len(service.classes) == 1 else None)
        streams.append(
            Stream(
                name, len(offered), recorded=tuple(offered),
                bounds=like.bounds if like else (), priority=like.priority if like else 0,
            )
        )  # fmt: skip
    span = kept[-1].at_s - first
    rate = len(kept) / span if span > 0 else math.inf
    left_out = recording.left_out(len(kept))
    return Offer("trace", service, Load(tuple(streams)), math.inf, rate, left_out)


def endless(offer: Offer) -> str | None:
    """Why requests would arrive for longer than anybody means; None where they do not."""
    for stream in offer.load.streams:
        slowest = stream.rate if stream.ramp is None else min(stream.ramp.start, stream.ramp.end)
        lasts_s = stream.recorded[-1].at_s if stream.recorded else stream.requests / slowest
        if lasts_s > LONGEST_RUN_S:
            years = lasts_s / (365 * 86400)
            return f"{stream.requests:,} requests of `{stream.name}` take {years:,.0f} years to arrive"
    return None


def varied(offer: Offer, sweep: Sweep, value: float) -> Offer:
    """The same load at another concurrency or rate; of several classes each keeps its part."""
    base = offer.concurrency if sweep.of == "concurrency" else offer.rate
    streams = offer.load.streams

    def part(own: float) -> float:
        return value * own / base if math.isfinite(base) else value / len(streams)

    change: Callable[[Stream], Stream] = (
        (lambda s: replace(s, cap=max(1, round(part(s.cap)))))
        if sweep.of == "concurrency"
        else (lambda s: replace(s, rate=part(s.rate)))
    )
    load = replace(offer.load, streams=tuple(change(s) for s in streams))
    if sweep.of == "concurrency":
        return replace(offer, load=load, concurrency=value)
    return replace(offer, load=load, rate=value)
