"""What the solver hands to `lower`: counts, shapes and places with what they are predicted to do.

Pure data. Knows no solver library and nothing of ports, flags or files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from disaggc.diagnostics import Diagnostic
from disaggc.ir.plan import Role, Shape, Yardstick
from disaggc.perf.estimate import Estimate

if TYPE_CHECKING:
    from disaggc.perf.layout import Layout, LayoutPrediction

ServingMode = Literal["disaggregated", "colocated", "flexible"]
Status = Literal["optimal", "feasible", "locked"]


@dataclass(frozen=True, slots=True)
class SlotAt:
    """One node's part of a replica. rank: position in the replica, 0 leads. devices: indices on the node."""

    node: str
    rank: int
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """One replica: what it does, how it is spread and where it runs (rank 0 first)."""

    role: Role
    group: str
    shape: Shape
    slots: tuple[SlotAt, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes it touches, rank order."""
        return tuple(slot.node for slot in self.slots)


@dataclass(frozen=True, slots=True)
class PoolBatch:
    """The planned steady state of one pool. batch: sequences running at once per replica.

    max_seqs: sequences per engine it must be held to so that the bounds keep; None = what memory allows.
    """

    role: Role
    group: str
    shape: Shape
    batch: float
    max_seqs: int | None = None


@dataclass(frozen=True, slots=True)
class Margin:
    """How much better one layout is than another. ratio: above 1 = better, in what `metric` names."""

    metric: Yardstick
    ratio: Estimate


@dataclass(frozen=True, slots=True)
class RankedLayout:
    """A layout that was weighed. relative: against the chosen layout.

    feasible: whether it meets every objective at the predicted value.
    """

    layout: Layout
    prediction: LayoutPrediction
    relative: Margin
    feasible: bool


@dataclass(frozen=True, slots=True)
class ServiceSolution:
    """One service as it should run.

    replicas: canonical order (role, group, shape, nodes). batches: one per pool. alternatives: best first, the chosen
    layout among them. margin: the chosen layout over the best of the other mode, above 1 = the chosen one is better.
    flexible_ratio: (prefill, decode) split of a flexible pool by routing.
    """

    name: str
    mode: ServingMode
    replicas: tuple[Placed, ...]
    batches: tuple[PoolBatch, ...]
    layout: Layout
    prediction: LayoutPrediction
    colocated: LayoutPrediction | None
    alternatives: tuple[RankedLayout, ...]
    margin: Margin | None
    flexible_ratio: tuple[int, int] | None = None
    prefill_doubling_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """How the answer was found. objective and bound are in the solver's units; gap = |bound - objective| / |bound|.

    refined: the predicted fixed point preferred a neighbour of the linear optimum.
    """

    status: Status
    objective: float
    bound: float
    gap: float
    wall_s: float
    refined: bool = False


@dataclass(frozen=True, slots=True)
class Solution:
    """A layout and a place for every service."""

    services: tuple[ServiceSolution, ...]
    report: Report
    diagnostics: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Proved: nothing meets the requirements. diagnostics: the binding ones, in the user's units."""

    diagnostics: tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True)
class Unproven:
    """The limit was reached before an answer was proved either way."""

    diagnostics: tuple[Diagnostic, ...]
