"""The placement problem as plain integers: what may run, how much it serves, what must be served.

Knows neither the spec nor the performance model (candidates fills it in) nor a solver library. Rates are in
micro-requests per second, batches in thousandths of a sequence, prices in thousandths of the currency per hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from disaggc.ir.plan import Role, Shape

Goal = Literal["throughput", "latency", "cost", "nodes"]
ProblemMode = Literal["disaggregated", "colocated"]


@dataclass(frozen=True, slots=True)
class Option:
    """One way to run a replica: a role in a shape on a node group at an operating point.

    rates: served per replica, one per scenario (the base first). batch: sequences running at once (decode and
    colocated). latency: this role's share of the normalised latency at this point, parts per million.
    """

    role: Role
    group: str
    vendor: str
    shape: Shape
    batch: int
    rates: tuple[int, ...]
    latency: int
    slots: int = 0
    """Most sequences it can hold within the objectives; 0 = as `batch`."""
    least: int = 1
    """Fewest replicas for which the rates hold (prefill replicas share a queue)."""

    @property
    def accelerators(self) -> int:
        """Accelerators one replica takes."""
        return self.shape.accelerators

    @property
    def mode(self) -> ProblemMode:
        """The way of serving it belongs to."""
        return "colocated" if self.role is Role.COLOCATED else "disaggregated"

    @property
    def key(self) -> tuple[str, str, int, int, int, int, int, int, int]:
        """Canonical order: role, group, shape, operating point."""
        s = self.shape
        return (self.role.value, self.group, s.tp, s.pp, s.dp, s.ep, s.dcp, self.batch, self.least)


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic of one service in one scenario. offered: arrivals, None = closed loop. in_flight: cap, None = open loop.

    must_serve: the offered rate has to be met. hold: sequences that must have room, unless the rate is met.
    """

    offered: int | None
    in_flight: int | None
    must_serve: bool
    hold: int | None = None


@dataclass(frozen=True, slots=True)
class ServiceProblem:
    """One service. forbidden: pairs of option positions that may not both be used. tokens: per mean request.

    exact: required replica counts by role. floor: rate that is guaranteed.
    """

    name: str
    options: tuple[Option, ...]
    forbidden: tuple[tuple[int, int], ...]
    loads: tuple[Load, ...]
    tokens: int
    priority: int = 0
    spare: int = 0
    exact: tuple[tuple[Role, int], ...] = ()
    max_nodes: int | None = None
    min_nodes: int | None = None
    floor: int | None = None

    @property
    def exclusive(self) -> bool:
        """Whether it takes whole nodes for itself, because it has a say in how many."""
        return self.max_nodes is not None or self.min_nodes is not None


@dataclass(frozen=True, slots=True)
class GroupSpace:
    """Identical nodes."""

    name: str
    nodes: int
    per_node: int
    price: int


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Services that share groups of nodes, and what to improve."""

    services: tuple[ServiceProblem, ...]
    groups: tuple[GroupSpace, ...]
    goal: Goal

    def group(self, name: str) -> GroupSpace:
        """The group of that name."""
        return next(group for group in self.groups if group.name == name)


Counts = tuple[tuple[tuple[int, int], ...], ...]
"""Per service: (option position, replicas) of the options in use, ascending."""


def is_chain(sizes: tuple[int, ...], per_node: int) -> bool:
    """Whether packing by totals is exact: each size divides the next larger one and the largest divides the node."""
    inside = sorted({size for size in sizes if size <= per_node})
    steps = [*inside, per_node]
    return all(large % small == 0 for small, large in pairwise(steps))


def maximal_patterns(sizes: tuple[int, ...], per_node: int) -> tuple[tuple[int, ...], ...]:
    """Every way to fill one node with replicas of these sizes to which no further one could be added."""
    found: list[tuple[int, ...]] = []

    def extend(prefix: tuple[int, ...], left: int) -> None:
        position = len(prefix)
        if position == len(sizes):
            if left < min(sizes):
                found.append(prefix)
            return
        for count in range(left // sizes[position], -1, -1):
            extend((*prefix, count), left - count * sizes[position])

    if sizes:
        extend((), per_node)
    return tuple(found)
