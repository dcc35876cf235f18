"""A layout of one service and what it is predicted to do. Stands above step times and queues, below the solver.

Knows no placement beyond the node groups, no target and no solver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from disaggc.ir.plan import Role, Shape
from disaggc.perf.estimate import Estimate
from disaggc.resolve.model import Bound, NodeGroupFacts

if TYPE_CHECKING:
    from disaggc.perf.case import Case

LayoutMode = Literal["disaggregated", "colocated", "flexible"]
Bottleneck = Literal["prefill", "decode", "kv-memory", "kv-transfer", "concurrency", "rate", "memory"]
Metric = Literal["output_tok_per_s", "total_tok_per_s", "tokens_per_cost", "ttft", "itl", "e2e"]
"""What two layouts are compared by; latencies are request-weighted medians, inverted so that more is better."""


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """Identical replicas of one role. max_seqs: sequences per engine; None = what memory allows."""

    role: Role
    group: NodeGroupFacts
    shape: Shape
    replicas: int
    max_seqs: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """All pools of one service; several pools per role allowed.

    A flexible layout is given by its present split: pools with role prefill and decode of one shape.
    """

    mode: LayoutMode
    pools: tuple[PoolLayout, ...]

    def replicas(self, role: Role) -> int:
        """Replicas of a role in all its pools."""
        return sum(p.replicas for p in self.pools if p.role is role)


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of one latency, seconds."""

    p50: Estimate
    p90: Estimate
    p99: Estimate

    def at(self, percentile: Literal[50, 90, 99]) -> Estimate:
        """The estimate of that percentile."""
        return {50: self.p50, 90: self.p90, 99: self.p99}[percentile]


@dataclass(frozen=True, slots=True)
class ClassOutcome:
    """What one class sees. rate: requests/s served. ttft does not hold the time a client holds requests back."""

    name: str
    rate: Estimate
    ttft: Latency
    itl: Latency
    e2e: Latency

    def latency(self, metric: Literal["ttft", "itl", "e2e"]) -> Latency:
        """The latency of that name."""
        return {"ttft": self.ttft, "itl": self.itl, "e2e": self.e2e}[metric]


@dataclass(frozen=True, slots=True)
class Violation:
    """An objective that the predicted value does not keep. name: the class. certain: even the hopeful end breaks it."""

    name: str
    bound: Bound
    value_s: float
    certain: bool


@dataclass(frozen=True, slots=True)
class LayoutPrediction:
    """The steady state of a layout. batches: sequences running per replica, by pool of the layout (prefill: prompts).

    cost_per_hour: price of the nodes it uses; None where one of them has no price. tokens_per_cost: total tokens per
    unit of currency. reasons: why it cannot run at all (then every number is zero). carried_from: measured shapes whose
    level pools of others were given.
    """

    layout: Layout
    classes: tuple[ClassOutcome, ...]
    output_tok_per_s: Estimate
    total_tok_per_s: Estimate
    tokens_per_cost: Estimate | None
    cost_per_hour: float | None
    currency: str | None
    bottleneck: Bottleneck
    utilisation: Mapping[str, float]
    batches: tuple[float, ...]
    violations: tuple[Violation, ...]
    reasons: tuple[str, ...] = ()
    carried_from: tuple[str, ...] = ()
    case: Case | None = field(default=None, repr=False, compare=False)

    @property
    def meets_objectives(self) -> bool:
        """It runs, and every objective holds at the predicted value."""
        return not self.violations and not self.reasons
