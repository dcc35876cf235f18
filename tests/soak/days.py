"""Whole days of traffic through the event simulator, one a seed: a tide, bursts, long prompts, replicas that fail.

Every request must end once, with its answer or with a reason; the mean number in the system must be rate x time in it
(Little), which no bookkeeping error survives over a hundred thousand requests.
"""

from __future__ import annotations

import math
import random
import time

from disaggc.ir.plan import Shape
from disaggc.perf.events import Front, Load, Offered, simulate
from disaggc.perf.events.load import Failure
from disaggc.perf.events.result import Run
from disaggc.routing.limits import Admission
from tests.perf.perf_cases import bench, load, nodes
from tests.soak.part import Part

DAY_S = 86_400.0
SEEDS = 8
MEAN_RATE = 1.5
"""Requests/s over the day; four times as many at its top as at its bottom."""


def day(seed: int) -> list[Offered]:
    """Arrivals of a day: thinned Poisson with a tide, a burst now and then, lognormal lengths that drift to longer."""
    rng = random.Random(seed)
    offered, at, burst = [], 0.0, 1.0
    while True:
        at += rng.expovariate(4 * MEAN_RATE)
        if at >= DAY_S:
            return offered
        if rng.random() < 0.001:
            burst = rng.choice((1.0, 1.0, 2.0))
        tide = 1.0 - 0.6 * math.cos(2 * math.pi * at / DAY_S)
        if rng.random() < tide * burst / 4:
            longer = 1.0 + at / DAY_S
            isl = min(8000, 1 + int(rng.lognormvariate(6.6, 0.9) * longer))
            offered.append(Offered(at, isl, min(4000, 1 + int(rng.lognormvariate(5.2, 0.8)))))


def strikes(seed: int) -> tuple[Failure, ...]:
    """A few replicas that end in the day and come back."""
    rng = random.Random(-seed)
    return tuple(
        Failure(rng.uniform(0, DAY_S), rng.randrange(2), rng.randrange(4), rng.uniform(60, 1800))
        for _ in range(4)
    )


def wrong(seen: Run, requests: int) -> list[str]:
    """What does not add up in a run."""
    faults = []
    if seen.requests != requests:
        faults.append(f"{requests} requests offered, {seen.requests} ended")
    failed = sum(sum(c.losses.values()) for c in seen.classes)
    if failed != seen.failed:
        faults.append(f"{seen.failed} failed, reasons for {failed}")
    served = seen.requests - seen.failed
    rate = served / (seen.whole.to_s - seen.whole.from_s)
    if not math.isclose(rate, seen.whole.req_per_s, rel_tol=1e-6):
        faults.append(f"throughput is {seen.whole.req_per_s:g}/s, by count {rate:g}/s")
    return faults


def replay() -> Part:
    """Every seed twice: the second run must give the same numbers."""
    one = bench(
        "Qwen/Qwen3-32B", nodes("h100-sxm", count=2), Shape(tp=2), load("chat", isl=1200, osl=250, rate=MEAN_RATE),
        max_model_len=12288,
    )  # fmt: skip
    faults, total, begun = [], 0, time.process_time()
    for seed in range(1, SEEDS + 1):
        offered = day(seed)
        total += len(offered)
        base = Load.trace(offered)
        today = Load(base.streams, strikes(seed))
        front = Front(admission=Admission(queue=10_000))
        layout = one.pd(4, 4)
        first, again = (
            simulate(one.models, one.service, layout, load=today, seed=seed, front=front) for _ in range(2)
        )
        faults += [f"day {seed}: {fault}" for fault in wrong(first, len(offered))]
        if first != again:
            faults.append(f"day {seed}: two runs differ")
    spent = time.process_time() - begun
    tried = f"{SEEDS} days, {total:,} requests, each replayed twice, {1e6 * spent / total / 2:.0f} us CPU a request"
    return Part("days of traffic in the simulator, with failures", tried, tuple(faults))
