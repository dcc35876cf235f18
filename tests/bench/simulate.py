"""CPU of the event simulator: one hour of traffic on 40 GPUs, and how it grows with requests, answers, replicas, classes.

python -m tests.bench.simulate [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator

from disaggc.ir.plan import Shape
from disaggc.perf.events import Front, Load, Offered, simulate
from disaggc.perf.layout import Layout
from disaggc.routing.limits import Admission
from tests.bench.stages import stage
from tests.perf.perf_cases import Bench, bench, load, nodes
from tests.perf_events.parts import exponential_lengths, poisson

QWEN = "Qwen/Qwen3-32B"
TARGET_S = 3.0
"""CPU seconds for 20,000 requests of an hour on 40 GPUs."""
BEST_OF = 3
CASE_S = 600
"""Wall seconds for a case, of which the largest take half a minute on a free core."""


def cpu_seconds(one: Bench, layout: Layout, offered: Load) -> tuple[float, int]:
    """(CPU seconds, events) of the fastest of a few runs."""
    best, events = float("inf"), 0
    for _ in range(BEST_OF):
        begun = time.process_time()
        seen = simulate(
            one.models, one.service, layout, load=offered, front=Front(admission=Admission(queue=100_000))
        )
        best = min(best, time.process_time() - begun)
        events = seen.handled
        if seen.failed:
            sys.exit(f"{seen.failed} requests failed: this would not measure the work of serving them")
    return best, events


def small(count: int, shape: Shape, *, isl: int = 2048, osl: int = 256, classes: int = 1) -> Bench:
    """Qwen3-32B on `count` nodes of eight H100."""
    loads = [load(f"c{i}", isl=isl, osl=osl, rate=1.0) for i in range(classes)]
    return bench(QWEN, nodes("h100-sxm", count=count), shape, *loads, max_model_len=12288)


def trace(requests: int, *, isl: float = 1500.0, osl: float = 300.0) -> Load:
    """An hour of Poisson arrivals with exponential lengths."""
    times = poisson(requests / 3600, requests)
    prompts, answers = exponential_lengths(isl, requests), exponential_lengths(osl, requests, seed=9)
    rows = zip(times, prompts, answers, strict=True)
    return Load.trace([Offered(at, min(i, 8000), min(o, 4000)) for at, i, o in rows])


def figures() -> Iterator[tuple[str, int, float, int]]:
    """(what, requests, CPU seconds, events) of every case."""
    tp2 = Shape(tp=2)
    one = small(5, tp2)
    for name, layout in (
        ("hour, 40 GPUs, 6P14D", one.pd(6, 14)),
        ("hour, 40 GPUs, 20 colocated", one.colocated(20)),
    ):
        yield name, 20_000, *cpu_seconds(one, layout, trace(20_000))
    for requests in (5_000, 20_000, 80_000):
        offered = Load.bench(2048, 256, rate=requests / 3600, requests=requests)
        yield f"requests {requests:,}", requests, *cpu_seconds(one, one.pd(6, 14), offered)
    for osl in (64, 512, 4096):
        long = small(5, tp2, osl=osl)
        offered = Load.bench(2048, osl, rate=3.0, requests=5000)
        yield f"output tokens {osl:,}", 5000, *cpu_seconds(long, long.pd(6, 14), offered)
    for isl in (512, 2048, 8192):
        wide = small(5, tp2, isl=isl)
        offered = Load.bench(isl, 256, rate=3.0, requests=5000)
        yield f"prompt tokens {isl:,}", 5000, *cpu_seconds(wide, wide.pd(6, 14), offered)
    for replicas in (4, 16, 64, 256):
        many = small(2 * replicas, tp2)
        p = replicas // 4
        offered = Load.bench(2048, 256, rate=0.25 * replicas, requests=5000)
        yield f"replicas {replicas}", 5000, *cpu_seconds(many, many.pd(p, replicas - p), offered)
    for classes in (1, 4, 16):
        mixed = small(5, tp2, classes=classes)
        offered = Load.of_service(mixed.service, 5000)
        yield f"classes {classes}", 5000, *cpu_seconds(mixed, mixed.pd(6, 14), offered)


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    as_json = parser.parse_args().json
    if not as_json:
        print(f"{'case':28} {'requests':>8} {'CPU s':>8} {'us/request':>11} {'events/request':>15}")
    cases = figures()
    while True:
        with stage("the next case", CASE_S):
            found = next(cases, None)
        if found is None:
            return
        name, requests, seconds, events = found
        each = 1e6 * seconds / requests
        if as_json:
            print(
                json.dumps({"case": name, "requests": requests, "cpu_s": seconds, "events": events}),
                flush=True,
            )
        else:
            late = f"  above {TARGET_S:g} s" if name.startswith("hour") and seconds > TARGET_S else ""
            print(
                f"{name:28} {requests:8,} {seconds:8.3f} {each:11.1f} {events / requests:15.2f}{late}",
                flush=True,
            )


if __name__ == "__main__":
    main()
