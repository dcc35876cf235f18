"""Layouts worth predicting: the solver's own, every split of the nodes between prefill and decode, colocated fills.

Ordered by the linear model, which costs microseconds, so that only the promising ones are predicted. Knows no
objectives' verdict: rank has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from disaggc.ir.plan import Role
from disaggc.resolve.pairing import pair_refusal
from disaggc.solve.problem import Goal
from disaggc.solve.rates import Kind, ReplicaRates
from disaggc.solve.sketch import Sketch, canonical, footprint, nodes_of

Room = Mapping[str, int]
"""Accelerators a service may use, per node group."""
SMALL = 8
"""Nodes up to which every split of a group is looked at."""
_PER_SPLIT = 2
_MOST = 56
_WINDOW = 3
_GENEROUS = 1.25


@dataclass(frozen=True, slots=True)
class Search:
    """Where to look. around: the solver's own layout; roles of the modes that may be chosen or compared."""

    rates: ReplicaRates
    room: Room
    goal: Goal
    around: Sketch | None


def sketches(search: Search) -> tuple[Sketch, ...]:
    """At most about sixty layouts within the room, the solver's own first, without repetition."""
    found: dict[Sketch, None] = {}
    if search.around is not None:
        found[search.around] = None
    split = sorted(_splits(search), key=lambda item: item[0])
    best: dict[tuple[object, ...], int] = {}
    for score, sketch in split:
        key = score[-1]
        if best.get(key, 0) < _PER_SPLIT:
            best[key] = best.get(key, 0) + 1
            found[sketch] = None
        if len(found) >= _MOST:
            break
    for sketch in _colocated(search):
        found[sketch] = None
    return tuple(found)


def every_sketch(search: Search, most: int) -> tuple[Sketch, ...] | None:
    """All layouts of at most one pool per role within the room; None when there are more than `most`."""
    found: list[Sketch] = []
    for prefill, decode in _pairs(search.rates):
        for p in range(1, _fill(search, prefill) + 1):
            left = _after(search, prefill, p)
            for d in range(1, _fill_from(search, decode, left) + 1):
                found.append(canonical({prefill: p, decode: d}))
                if len(found) > most:
                    return None
    for kind in search.rates.kinds:
        if kind[0] is Role.COLOCATED:
            found.extend(canonical({kind: n}) for n in range(1, _fill(search, kind) + 1))
    return tuple(found) if len(found) <= most else None


def hopeless(search: Search, sketch: Sketch) -> bool:
    """Whether a role could not carry a demanded rate even with a quarter more capacity than it has."""
    rates = search.rates
    classes = rates.service.classes
    if any(c.rate is None or c.concurrency is not None for c in classes):
        return False
    bounded = any(b.metric in ("ttft", "e2e") for c in classes for b in c.bounds)
    if search.goal == "throughput" and not bounded:
        return False
    supply: dict[Role, float] = {}
    for kind, count in sketch:
        if kind[0] is Role.COLOCATED:
            return False
        batch = None if kind[0] is Role.PREFILL else rates.slots(kind)
        one = 0.0 if batch == 0 else rates.at(kind, batch, pool=count if batch is None else 1).rate.value
        supply[kind[0]] = supply.get(kind[0], 0.0) + count * one
    return min(supply.values()) * _GENEROUS < sum(c.rate or 0.0 for c in classes)


def _pairs(rates: ReplicaRates) -> Iterator[tuple[Kind, Kind]]:
    """Prefill and decode kinds that may exchange KV."""
    flexible = rates.service.mode == "flexible"
    for prefill in rates.kinds:
        for decode in rates.kinds:
            if prefill[0] is not Role.PREFILL or decode[0] is not Role.DECODE:
                continue
            if flexible and prefill[1:] != decode[1:]:
                continue
            if rates.group(prefill).accelerator.vendor != rates.group(decode).accelerator.vendor:
                continue
            if pair_refusal(rates.service, prefill[2], decode[2]) is None:
                yield prefill, decode


_Scored = tuple[tuple[float, float, tuple[object, ...]], Sketch]


def _splits(search: Search) -> Iterator[_Scored]:
    for prefill, decode in _pairs(search.rates):
        for p, d in _counts(search, prefill, decode):
            sketch = canonical({prefill: p, decode: d})
            yield (
                (*_score(search, (prefill, p), (decode, d)), _split_key(search, (prefill, p), (decode, d))),
                sketch,
            )


def _split_key(search: Search, prefill: tuple[Kind, int], decode: tuple[Kind, int]) -> tuple[object, ...]:
    """Two sketches with the same key differ in shape only."""
    return tuple(
        (
            kind[1],
            -(-count * kind[2].accelerators // min(search.rates.group(kind).per_node, _grain(search, kind))),
        )
        for kind, count in (prefill, decode)
    )


def _grain(search: Search, kind: Kind) -> int:
    """Accelerators that count as one step of a split: nodes, or single ones where there is one node."""
    per_node = search.rates.group(kind).per_node
    return per_node if search.room.get(kind[1], 0) > per_node else 1


def _counts(search: Search, prefill: Kind, decode: Kind) -> Iterator[tuple[int, int]]:
    """Replica counts of a split: whole nodes to prefill, the rest to decode; also fewer where that is the aim."""
    near = dict(search.around or ())
    for p in _steps(search, prefill, near.get(prefill)):
        left = _after(search, prefill, p)
        full = _fill_from(search, decode, left)
        if not full:
            continue
        if search.goal in ("cost", "nodes"):
            yield from ((p, d) for d in _steps(search, decode, near.get(decode)) if d < full)
        yield p, full


def _steps(search: Search, kind: Kind, near: int | None) -> list[int]:
    """Counts to try: whole nodes on small clusters, single replicas on one node, else around the solver's count."""
    most = _fill(search, kind)
    grain, size = _grain(search, kind), kind[2].accelerators
    each = max(1, grain // size)
    every = list(range(each, most + 1, each)) or ([most] if most else [])
    if len(every) > SMALL * 2:
        center = near if near is not None else most // 2 // each * each
        every = [
            n for n in range(center - _WINDOW * each, center + _WINDOW * each + 1, each) if 1 <= n <= most
        ]
    if near is not None and near not in every and near <= most:
        every.append(near)
    return every


def _fill(search: Search, kind: Kind) -> int:
    return _fill_from(search, kind, search.room)


def _fill_from(search: Search, kind: Kind, room: Room) -> int:
    per_node, size = search.rates.group(kind).per_node, kind[2].accelerators
    free = room.get(kind[1], 0)
    if size > per_node:
        return free // (-(-size // per_node) * per_node)
    return free // per_node * (per_node // size) + free % per_node // size


def _after(search: Search, kind: Kind, count: int) -> dict[str, int]:
    left = dict(search.room)
    for name, taken in footprint(search.rates, ((kind, count),)).items():
        left[name] = left.get(name, 0) - taken
    return left


def _score(search: Search, prefill: tuple[Kind, int], decode: tuple[Kind, int]) -> tuple[float, float]:
    """(first aim, latency) by the linear model, smaller is better."""
    rates = search.rates
    classes = rates.service.classes
    (kind_p, p), (kind_d, d) = prefill, decode
    cap = sum(c.concurrency for c in classes if c.concurrency is not None) or None
    offered = sum(c.rate for c in classes if c.rate is not None) or None
    batch = rates.slots(kind_d)
    if cap is not None:
        batch = min(batch, cap / d)
    if offered is not None and batch >= 1:
        batch = min(batch, max(1.0, offered / d * rates.idle(kind_d)))
    served = p * rates.at(kind_p, pool=p).rate.value
    served = min(served, d * rates.at(kind_d, round(batch, 1)).rate.value) if batch >= 1 else 0.0
    served = min(served, offered) if offered is not None else served
    latency = rates.seconds(kind_p, None) + (rates.seconds(kind_d, round(batch, 1)) if batch >= 1 else 1e9)
    match search.goal:
        case "throughput":
            return -round(served, 4), latency
        case "latency":
            return round(latency, 4), -served
        case "cost" | "nodes":
            return float(nodes_of(rates, canonical({kind_p: p, kind_d: d}))), -served


def _colocated(search: Search) -> Iterator[Sketch]:
    for kind in search.rates.kinds:
        if kind[0] is not Role.COLOCATED:
            continue
        full = _fill(search, kind)
        near = dict(search.around or ()).get(kind)
        counts = _steps(search, kind, near) if search.goal in ("cost", "nodes") else [full]
        for count in sorted({*counts, full} - {0}):
            yield canonical({kind: count})
