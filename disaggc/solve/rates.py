"""What one replica of each role, shape and group carries, asked of perf once and remembered.

The linear model's numbers: a replica at an operating point, whatever else the layout holds. Counts nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from disaggc.ir.plan import Role, Shape
from disaggc.perf.capacity import Candidate, Capacity, capacity, operating_points
from disaggc.perf.models import Models
from disaggc.resolve.model import NodeGroupFacts, ResolvedService
from disaggc.solve.shapes import shapes_for

Kind = tuple[Role, str, Shape]
"""Role, node group, shape: everything that makes two replicas alike."""
MOST_POINTS = 10
"""Operating points kept for each kind; denser grids move the optimum by less than the model's error."""
ROLES = (Role.PREFILL, Role.DECODE, Role.COLOCATED)
LONGEST_S = 10 * 365 * 86400.0
"""A replica that has a request for ten years serves nobody; in micro-seconds the solver can still add such times up."""


@dataclass(slots=True)
class ReplicaRates:
    """Capacities of one service. variants: the service under each scenario's traffic, its own first."""

    models: Models
    variants: tuple[ResolvedService, ...]
    roles: tuple[Role, ...] = ROLES
    kinds: tuple[Kind, ...] = ()
    refused: dict[tuple[Role, str], tuple[str, ...]] = field(default_factory=dict)
    endless: dict[Kind, float] = field(default_factory=dict)
    """Kinds that are left out because a request takes longer than LONGEST_S: least seconds it takes."""
    _known: dict[tuple[Kind, float | None, int, int], Capacity] = field(default_factory=dict)
    _points: dict[Kind, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, models: Models, variants: tuple[ResolvedService, ...], roles: tuple[Role, ...]
    ) -> ReplicaRates:
        """Every kind whose memory fits and that ends; `refused` and `endless` say why a role has none on a group."""
        found: list[Kind] = []
        refused: dict[tuple[Role, str], tuple[str, ...]] = {}
        service = variants[0]
        for role in roles:
            allowed = _choices(service, role)
            for group in models.resolved.groups:
                if allowed and group.name not in allowed:
                    continue
                shapes, why = shapes_for(models, service, role, group=group)
                found.extend((role, group.name, shape) for shape in shapes)
                if not shapes:
                    refused[role, group.name] = why
        rates = cls(models, variants, roles, refused=refused)
        rates.kinds = tuple(kind for kind in found if not rates._endless(kind))
        return rates

    @property
    def service(self) -> ResolvedService:
        """The service under its own traffic."""
        return self.variants[0]

    def group(self, kind: Kind) -> NodeGroupFacts:
        """The node group of a kind."""
        return self.models.resolved.group(kind[1])

    def most(self, kind: Kind) -> int:
        """Replicas the whole group has room for."""
        group, size = self.group(kind), kind[2].accelerators
        if size <= group.per_node:
            return len(group.nodes) * (group.per_node // size)
        return len(group.nodes) // -(-size // group.per_node)

    def at(self, kind: Kind, batch: float | None = None, *, pool: int = 1, variant: int = 0) -> Capacity:
        """One replica's capacity. batch: running sequences (prefill: None); pool: replicas behind one prefill queue."""
        key = (kind, batch, pool, variant)
        if key not in self._known:
            candidate = Candidate(kind[0], self.group(kind), kind[2], pool)
            self._known[key] = capacity(self.models, self.variants[variant], candidate, batch=batch)
        return self._known[key]

    def points(self, kind: Kind) -> tuple[float, ...]:
        """Batches at which every bound the role can break holds, ascending, at most MOST_POINTS."""
        if kind not in self._points:
            candidate = Candidate(kind[0], self.group(kind), kind[2])
            every = operating_points(self.models, self.service, candidate, replicas=min(self.most(kind), 64))
            good = [point for point in _thinned(every, 4 * MOST_POINTS) if self.at(kind, point).feasible]
            quick = [point for point in good if self.seconds(kind, point) <= LONGEST_S]
            if good and not quick:
                self.endless[kind] = self.seconds(kind, good[0])
            self._points[kind] = _thinned(tuple(quick), MOST_POINTS)
        return self._points[kind]

    def _endless(self, kind: Kind) -> bool:
        """Constants may be such that each makes sense, and all of them together make a request take for ever."""
        if kind[0] is Role.PREFILL:
            if self.seconds(kind, None) > LONGEST_S:
                self.endless[kind] = self.seconds(kind, None)
        else:
            self.points(kind)
        return kind in self.endless

    def slots(self, kind: Kind) -> float:
        """Most sequences one replica runs with every bound kept; 0 = it cannot run."""
        return max(self.points(kind), default=0.0)

    def pinned(self, kind: Kind) -> int | None:
        """Sequences per engine to hold a decode replica to; None where memory binds first."""
        fit = self.at(kind).fit
        if kind[0] is Role.PREFILL or fit is None:
            return None
        most = self.slots(kind)
        if most >= fit.replica_sequences or not most:
            return None
        return max(1, int(most / fit.ranks))

    def idle(self, kind: Kind) -> float:
        """Seconds a mean request spends in the role at its lightest load: an underestimate, for ordering only."""
        points = self.points(kind)
        return self.seconds(kind, points[0] if points else None)

    def seconds(self, kind: Kind, batch: float | None) -> float:
        """Seconds a mean request spends in the role at this operating point."""
        step = self.at(kind, batch).step_s.value
        if kind[0] is Role.PREFILL:
            return step
        return step * _mean_output(self.service)


def _choices(service: ResolvedService, role: Role) -> tuple[str, ...]:
    match role:
        case Role.PREFILL:
            return service.prefill.groups
        case Role.COLOCATED:
            return service.colocated.groups
        case Role.DECODE | Role.FLEXIBLE:
            return service.decode.groups


def _mean_output(service: ResolvedService) -> float:
    weights = [c.rate if c.rate is not None else float(c.concurrency or 1) for c in service.classes]
    return sum(w * c.osl.mean for w, c in zip(weights, service.classes, strict=True)) / sum(weights)


def _thinned(points: tuple[float, ...], most: int) -> tuple[float, ...]:
    """At most so many, both ends kept, evenly by rank."""
    if len(points) <= most:
        return points
    last = len(points) - 1
    return tuple(points[round(i * last / (most - 1))] for i in range(most))
