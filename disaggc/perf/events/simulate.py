"""`simulate`: a layout, a load and a seed in, a Run out. Builds the engines of the layout and lets the calendar run."""

from __future__ import annotations

from collections.abc import Callable

from disaggc.perf.constants import Corner
from disaggc.perf.events.cluster import Cluster
from disaggc.perf.events.load import Load
from disaggc.perf.events.result import Run
from disaggc.perf.events.setting import Front
from disaggc.perf.layout import Layout
from disaggc.perf.memory import NoFit
from disaggc.perf.models import Models
from disaggc.perf.stations import Sized
from disaggc.resolve.model import ResolvedService

Progress = Callable[[int, int], None]
"""Called now and then with how many requests are over and how many there are."""


def simulate(
    models: Models,
    service: ResolvedService,
    layout: Layout,
    *,
    load: Load,
    seed: int = 1,
    front: Front | None = None,
    corner: Corner = "likely",
    progress: Progress | None = None,
) -> Run:
    """One run; the same arguments give the same numbers on every machine.

    Memory is sized for the service's own classes; the load may be another. corner: at which end of their ranges the
    constants are taken. A layout that cannot run gives a Run with reasons.
    """
    sized: list[Sized] = []
    for pool in layout.pools:
        memory = models.memory(service, pool.group, pool.role, shape=pool.shape)
        if isinstance(memory, NoFit):
            return Run(layout, seed, reasons=(str(memory),))
        sized.append(Sized(pool, memory))
    if all(pool.role.value == "prefill" or not pool.replicas for pool in layout.pools):
        return Run(layout, seed, reasons=("no replica that decodes",))
    cluster = Cluster(
        models, service, tuple(sized), load=load, seed=seed, front=front or Front(), corner=corner
    )
    for failure in load.failures:
        cluster.fail_at(failure)
    return cluster.run(layout, progress)
