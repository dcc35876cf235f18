"""One layout under one traffic, ready to be evaluated at any set of constants. Knows no ranges."""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.ir.plan import Role
from disaggc.perf.demand import ClassDemand
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.finite import FiniteRun
from disaggc.perf.latency import ClassPoint, Latencies
from disaggc.perf.models import Models
from disaggc.perf.run_latency import run_point
from disaggc.perf.stations import Sized, Stations
from disaggc.perf.steady import Steady
from disaggc.perf.transfer import Endpoint, KvPath, kv_path
from disaggc.resolve.model import ResolvedService


@dataclass(frozen=True, slots=True)
class Point:
    """The layout at one set of constants."""

    classes: tuple[ClassPoint, ...]
    steady: Steady
    output_tok_per_s: float
    total_tok_per_s: float


class Case:
    """A layout, its traffic and its pools' facts. requests: of a run that ends; None = the steady state."""

    def __init__(
        self,
        models: Models,
        service: ResolvedService,
        pools: tuple[Sized, ...],
        *,
        classes: tuple[ClassDemand, ...],
        requests: float | None = None,
    ) -> None:
        self.requests = requests
        self.models, self.service, self.pools, self.classes = models, service, pools, classes
        self.prefill = tuple(p for p in pools if p.pool.role is Role.PREFILL)
        self.decode = tuple(p for p in pools if p.pool.role is not Role.PREFILL)
        self.colocated = not self.prefill
        self.paths = self._paths()
        self._points: dict[int, Point] = {}

    def _paths(self) -> tuple[KvPath, ...]:
        """One path for each prefill pool, to the decode pool it reaches slowest."""
        if not self.prefill or not self.decode:
            return ()
        same = self._in_one_node()
        found = []
        for source in self.prefill:
            start = Endpoint(source.pool.group, source.pool.shape)
            ends = (Endpoint(p.pool.group, p.pool.shape) for p in self.decode)
            fabric = self.models.resolved.fabric
            paths = (kv_path(self.service, fabric, start, decode=end, same_node=same) for end in ends)
            found.append(min(paths, key=lambda path: path.line_bytes_per_s / path.copies))
        return tuple(found)

    def _in_one_node(self) -> bool:
        groups = {p.pool.group.name for p in self.pools}
        accelerators = sum(p.pool.replicas * p.pool.shape.accelerators for p in self.pools)
        return len(groups) == 1 and accelerators <= self.pools[0].pool.group.per_node

    def times(self, sized: Sized) -> tuple[StepTimes, StepTimes, StepTimes]:
        """(worst, likely, best) step times of a pool's replicas."""
        engine = self.models.engine(self.service, sized.pool.group, sized.pool.shape)
        return engine.worst, engine.likely, engine.best

    def at_corner(self, corner: int) -> Point:
        """At all constants' cautious (0), likely (1) or hopeful (2) end."""
        return self._evaluated([self.times(p)[corner] for p in self.pools])

    def at_draw(self, draw: int) -> Point:
        """At one of the shared draws of the constants."""
        if draw not in self._points:
            drawn = [self.models.drawn(self.service, p.pool.group, p.pool.shape)[draw] for p in self.pools]
            self._points[draw] = self._evaluated(drawn)
        return self._points[draw]

    def opened(self, times: list[StepTimes]) -> tuple[Stations, Steady]:
        """The stations at these step times, and their steady state."""
        stations = Stations(self.classes, self.paths, list(zip(self.pools, times, strict=True)))
        return stations, stations.solve()

    def _evaluated(self, times: list[StepTimes]) -> Point:
        stations, steady = self.opened(times)
        run = None
        if self.requests is not None and sum(steady.rates) > 0:
            run = FiniteRun(stations, steady, self.requests).run()
        latencies = Latencies(stations, steady, mixed=run.mixed if run else 0.0)
        points = tuple(latencies.of_class(i) for i in range(len(self.classes)))
        if run is not None:
            points = tuple(
                run_point(point, passed, latencies.prompt_s(i), standing_s=latencies.standing_s(i))
                for i, (point, passed) in enumerate(zip(points, run.classes, strict=True))
            )
        out = sum(p.rate * c.osl.mean for p, c in zip(points, self.classes, strict=True))
        prompt = sum(p.rate * c.isl.mean for p, c in zip(points, self.classes, strict=True))
        return Point(points, steady, out, out + prompt)
