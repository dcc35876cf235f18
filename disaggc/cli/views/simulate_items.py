"""The parts of `disaggc.simulate/v1`: a run, its load, classes, pools and ranges. Types only."""

from __future__ import annotations

from typing import Literal

from disaggc.cli.views.document import Item
from disaggc.ir.plan import Basis, Ratio, Shape


class SpreadItem(Item):
    """A latency over the requests of one class, milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float


class ClassItem(Item):
    """What one class saw."""

    requests: int
    """Sent."""
    failed: int
    """Without a whole answer."""
    losses: dict[str, int]
    """Failed requests by reason: refused, too-long, lease-expired, replica-failed."""
    prefilled_locally: int
    """Prompts computed by the replica that answered; with prefill pools, those below the break-even."""
    cached_share: float
    """Of the prompt tokens, those that prefix caches had."""
    within_objectives: int
    """Requests within every objective of the class, the limit at the highest percentile taken for each."""
    ttft_ms: SpreadItem
    """Time to first token; time the client holds a request back is not in it."""
    itl_ms: SpreadItem
    """Between two tokens."""
    tpot_ms: SpreadItem
    """Mean between two tokens of one request."""
    e2e_ms: SpreadItem
    """The whole answer."""


class LoadItem(Item):
    """What clients did."""

    kind: Literal["spec", "bench", "trace"]
    """The spec's classes, a bench run or a recorded trace."""
    requests: int
    """Sent in all."""
    concurrency: float | None
    """Most in flight; null: no cap."""
    rate: float | None
    """Requests per second offered; null: as many as the cap allows."""
    left_out: str | None
    """What of a trace is not in it; null where nothing is."""


class ThroughputItem(Item):
    """Without ramp-up and tail."""

    from_s: float
    to_s: float
    req_per_s: float
    output_tok_per_s: float
    total_tok_per_s: float


class MomentItem(Item):
    """A pool at one time."""

    at_s: float
    running: float
    """Sequences in decode, prompts being computed in prefill."""
    waiting: float
    """Requests that wait in the pool."""
    kv: float
    """Share of KV memory in use."""
    up: int
    """Replicas that are up."""


class PoolItem(Item):
    """One pool over the run."""

    role: str
    replicas: int
    shape: Shape
    busy: float
    """Share of time in which its engines compute anything."""
    fill: float
    """Slots in use: sequences that run over those that may; in prefill the same as busy."""
    preemptions: int
    """Sequences that gave their KV up and were computed again."""
    timeline: tuple[MomentItem, ...]


class RangeItem(Item):
    """80 % range: all constants at their cautious and at their hopeful ends."""

    low: float
    high: float


class RunItem(Item):
    """One run."""

    service: str
    mode: str
    """As given: plan, colocated or a ratio."""
    ratio: Ratio | None
    """Replicas per role; null when colocated."""
    load: LoadItem
    classes: dict[str, ClassItem]
    duration_s: float
    """Simulated time from the start to the last answer."""
    req_per_s: float
    output_tok_per_s: float
    """Over the whole run, as a bench reports it."""
    total_tok_per_s: float
    goodput_req_per_s: float
    """Requests within every objective, per second."""
    steady: ThroughputItem | None
    """Null where the run is ramp-up and tail only."""
    utilisation: dict[str, float]
    """By role: prefill, share of time busy; decode and colocated, share of slots in use."""
    ranges: dict[str, RangeItem]
    """By the path of each figure in this run, e.g. `classes.talk.ttft_ms.p90`; empty without --range."""
    pools: tuple[PoolItem, ...]
    basis: Basis
    """What the step times rest on."""
    carried_from: tuple[str, ...]
    """Measured shapes whose level the pools of other shapes were given."""
    seed: int
