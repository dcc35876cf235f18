"""A finished run as numbers: percentiles per class, throughput of the whole and of its steady part, use of pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from disaggc.ir.plan import Role
from disaggc.perf.events.flight import Flight
from disaggc.perf.events.result import ClassRun, PoolRun, Run, Spread, Throughput
from disaggc.perf.events.tally import Histogram
from disaggc.perf.layout import Layout
from disaggc.resolve.model import Bound

if TYPE_CHECKING:
    from disaggc.perf.events.client import Caller
    from disaggc.perf.events.cluster import Cluster

_RAMP = 0.2
"""Share of the answers that belong to the ramp-up."""
_LEAST = 0.2
"""Share of the run that must be left for a steady part."""


def report(cluster: Cluster, layout: Layout, now: float) -> Run:
    """Everything that is told about a run that ended at `now`."""
    for pool in cluster.seats:
        for seat in pool:
            if seat.engine is not None:
                seat.engine.settle(now)
    classes = tuple(_class(c, seen) for c, seen in zip(cluster.callers, cluster.itl, strict=True))
    good = sum(c.good for c in classes)
    pools = tuple(_pool(cluster, i, now) for i in range(len(cluster.pools)))
    return Run(
        layout=layout,
        seed=cluster.seed,
        classes=classes,
        whole=_between(cluster.callers, 0.0, now),
        steady=_steady(cluster.callers, now),
        goodput_req_per_s=good / now if now > 0 else 0.0,
        utilisation=_utilisation(cluster, pools),
        pools=pools,
        held=tuple(cluster.timeline.held),
        handled=cluster.calendar.handled,
    )


def _class(caller: Caller, itl: Histogram) -> ClassRun:
    whole = [f for f in caller.ended if f.loss is None]
    losses = Counter(f.loss.value for f in caller.ended if f.loss is not None)
    return ClassRun(
        name=caller.stream.name,
        requests=len(caller.ended),
        failed=len(caller.ended) - len(whole),
        losses=dict(sorted(losses.items())),
        good=sum(_within(f, caller.stream.bounds) for f in whole),
        ttft=Spread.of([f.first_s - f.sent_s for f in whole]),
        itl=Spread.of_histogram(itl),
        tpot=Spread.of([_tpot(f) for f in whole if f.osl > 1]),
        e2e=Spread.of([f.end_s - f.sent_s for f in whole]),
        local=sum(f.source is None for f in whole),
        cached=sum(f.reused for f in whole) / max(1, sum(f.isl for f in whole)),
    )


def _tpot(flight: Flight) -> float:
    return (flight.end_s - flight.first_s) / (flight.osl - 1) if flight.osl > 1 else 0.0


def _within(flight: Flight, bounds: Sequence[Bound]) -> bool:
    """Whether one request keeps the objectives: of each metric the limit at its highest percentile, TPOT for ITL."""
    limits = {b.metric: b.limit_s for b in sorted(bounds, key=lambda b: b.percentile)}
    seen = {
        "ttft": flight.first_s - flight.sent_s,
        "itl": _tpot(flight),
        "e2e": flight.end_s - flight.sent_s,
    }
    return all(seen[metric] <= limit for metric, limit in limits.items())


def _steady(callers: Sequence[Caller], now: float) -> Throughput | None:
    """From a fifth of the answers on until the first stream has sent its last request."""
    ends = sorted(f.end_s for c in callers for f in c.ended)
    if not ends:
        return None
    begin = ends[int(_RAMP * (len(ends) - 1))]
    end = min(c.last_sent_s for c in callers)
    return _between(callers, begin, end) if end - begin >= _LEAST * now else None


def _between(callers: Sequence[Caller], begin: float, end: float) -> Throughput:
    """What was done in a stretch of time; a running answer's tokens are spread evenly over it."""
    requests = prompt = answer = 0.0
    for caller in callers:
        for flight in caller.ended:
            if flight.loss is not None or flight.end_s < begin or flight.first_s > end:
                continue
            requests += begin <= flight.end_s <= end
            if begin <= flight.first_s:
                prompt += flight.isl
            span = flight.end_s - flight.first_s
            inside = min(flight.end_s, end) - max(flight.first_s, begin)
            answer += flight.osl * (inside / span if span > 0 else 1.0)
    span = end - begin
    if span <= 0:
        return Throughput(begin, end, 0.0, 0.0, 0.0)
    return Throughput(begin, end, requests / span, answer / span, (answer + prompt) / span)


def _pool(cluster: Cluster, i: int, now: float) -> PoolRun:
    sized, seats = cluster.pools[i], cluster.seats[i]
    engines = [s.engine for s in seats if s.engine is not None]
    ranks = [rank for s in seats for rank in s.ranks]
    if engines and now > 0:
        busy = sum(e.batch.busy_s for e in engines) / len(engines) / now
        fill = sum(e.batch.sequence_s for e in engines) / len(engines) / now / sized.limit
    elif ranks and now > 0:
        busy = fill = sum(r.busy_s for r in ranks) / len(ranks) / now
    else:
        busy = fill = 0.0
    return PoolRun(
        role=sized.pool.role.value,
        replicas=len(seats),
        shape=str(sized.pool.shape),
        busy=busy,
        fill=fill,
        preemptions=sum(e.preemptions for e in engines),
        timeline=tuple(cluster.timeline.moments[i]),
    )


def _utilisation(cluster: Cluster, pools: Sequence[PoolRun]) -> dict[str, float]:
    """By role: prefill by the time its engines work, the others by sequences running over what may run."""
    out: dict[str, float] = {}
    for role in (Role.PREFILL, Role.DECODE, Role.COLOCATED):
        of_role = [(p, s.engines) for p, s in zip(pools, cluster.pools, strict=True) if s.pool.role is role]
        engines = sum(count for _, count in of_role)
        if engines:
            out[role.value] = sum(p.fill * count for p, count in of_role) / engines
    return out
