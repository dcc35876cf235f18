"""What a run gave: per class, per pool, over time. Plain numbers in seconds, tokens and shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from disaggc.perf.events.tally import Histogram, quantile
from disaggc.perf.layout import Layout


@dataclass(frozen=True, slots=True)
class Spread:
    """One latency over the requests of a class, seconds."""

    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of these values."""
        if not values:
            return cls()
        ordered = sorted(values)
        p50, p90, p99 = (quantile(ordered, share) for share in (0.5, 0.9, 0.99))
        return cls(sum(ordered) / len(ordered), p50, p90, p99)

    @classmethod
    def of_histogram(cls, seen: Histogram) -> Spread:
        """Of weighted values."""
        return cls(seen.mean, seen.quantile(0.5), seen.quantile(0.9), seen.quantile(0.99))


@dataclass(frozen=True, slots=True)
class ClassRun:
    """What one class saw. failed: requests without a whole answer, by reason in `losses`; good: those within bounds.

    cached: share of the prompt tokens that prefix caches had. local: prompts computed where they were answered.
    """

    name: str
    requests: int
    failed: int
    losses: Mapping[str, int]
    good: int
    ttft: Spread
    itl: Spread
    tpot: Spread
    e2e: Spread
    cached: float = 0.0
    local: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """One pool at one time: requests that run, that wait, share of KV in use, replicas that are up."""

    at_s: float
    running: float
    waiting: float
    kv: float
    up: int


@dataclass(frozen=True, slots=True)
class PoolRun:
    """One pool over the run. busy: share of time its engines worked; fill: running over what it may run at most."""

    role: str
    replicas: int
    shape: str
    busy: float
    fill: float
    preemptions: int
    timeline: tuple[Moment, ...]


@dataclass(frozen=True, slots=True)
class Throughput:
    """Over a stretch of the run."""

    from_s: float
    to_s: float
    req_per_s: float
    output_tok_per_s: float
    total_tok_per_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """One simulated run. whole: from the start to the last answer, as a bench reports it.

    steady: without ramp-up and tail, None where the run is all transient. utilisation: by role, share of time prefill
    engines work, share of the sequence limit in use elsewhere. held: requests that wait for admission, over time.
    handled: events simulated. reasons: why it cannot run (then all is zero).
    """

    layout: Layout
    seed: int
    classes: tuple[ClassRun, ...] = ()
    whole: Throughput = field(default_factory=lambda: Throughput(0.0, 0.0, 0.0, 0.0, 0.0))
    steady: Throughput | None = None
    goodput_req_per_s: float = 0.0
    utilisation: Mapping[str, float] = field(default_factory=dict)
    pools: tuple[PoolRun, ...] = ()
    held: tuple[tuple[float, int], ...] = ()
    handled: int = 0
    reasons: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """Requests of all classes."""
        return sum(c.requests for c in self.classes)

    @property
    def failed(self) -> int:
        """Requests without a whole answer."""
        return sum(c.failed for c in self.classes)
