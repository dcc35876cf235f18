"""Settles every service on one layout: the linear optimum and its neighbours, predicted and put in order.

Services share the cluster as the linear optimum divided it; each then moves within its own share and what is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from disaggc.solve.neighbours import Search, every_sketch, hopeless, sketches
from disaggc.solve.problem import Goal, PlacementProblem
from disaggc.solve.program import Program
from disaggc.solve.rank import Weighed, best_first, weigh
from disaggc.solve.rates import Kind, ReplicaRates
from disaggc.solve.sketch import Sketch, canonical, footprint

EXHAUSTIVE = 400
"""Layouts up to which all of them are predicted before a service is given up."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One service's layouts, best first. linear: what the linear model chose; complete: all layouts were looked at."""

    ranked: tuple[Weighed, ...]
    linear: Sketch | None
    complete: bool = False

    @property
    def best(self) -> Weighed | None:
        """The layout to run; None when none of them may be chosen and holds."""
        first = self.ranked[0] if self.ranked else None
        return first if first is not None and first.holds and first.allowed else None


def linear_sketches(
    problem: PlacementProblem, program: Program, values: tuple[int, ...]
) -> tuple[Sketch, ...]:
    """The solver's counts as sketches; operating points of one kind fall together."""
    found: list[Sketch] = []
    for service, variables in zip(problem.services, program.counts, strict=True):
        counts: dict[Kind, int] = {}
        for option, variable in zip(service.options, variables, strict=True):
            kind = (option.role, option.group, option.shape)
            counts[kind] = counts.get(kind, 0) + values[variable]
        found.append(canonical(counts))
    return tuple(found)


def choose(
    rates: tuple[ReplicaRates, ...],
    goal: Goal,
    linear: tuple[Sketch | None, ...],
    *,
    fixed: Mapping[int, Choice] | None = None,
) -> tuple[Choice, ...]:
    """A choice per service, those of higher priority first to move; those in `fixed` stay as they are."""
    chosen: dict[int, Choice] = dict(fixed or {})
    taken = {i: _whole(rates[i], sketch) for i, sketch in enumerate(linear) if sketch is not None}
    taken |= {i: _whole(rates[i], choice.ranked[0].sketch) for i, choice in chosen.items()}
    moving = [i for i in range(len(rates)) if i not in chosen]
    for i in sorted(moving, key=lambda i: (-rates[i].service.given.priority, rates[i].service.name)):
        room = _room(rates[i], [used for j, used in taken.items() if j != i])
        search = Search(rates[i], room, goal, linear[i])
        choice = Choice(tuple(best_first([weigh(rates[i], s, goal) for s in sketches(search)])), linear[i])
        if choice.best is None:
            choice = _all(search, choice)
        chosen[i] = choice
        if choice.best is not None:
            taken[i] = _whole(rates[i], choice.best.sketch)
    return tuple(chosen[i] for i in range(len(rates)))


def _all(search: Search, choice: Choice) -> Choice:
    """Nothing promising holds: look at every layout where there are few enough."""
    every = every_sketch(search, EXHAUSTIVE)
    if every is None:
        return choice
    known = {weighed.sketch for weighed in choice.ranked}
    left = [s for s in every if s not in known and not hopeless(search, s)]
    more = [weigh(search.rates, sketch, search.goal) for sketch in left]
    return Choice(tuple(best_first([*choice.ranked, *more])), choice.linear, complete=True)


def _room(rates: ReplicaRates, others: list[Mapping[str, int]]) -> dict[str, int]:
    groups = rates.models.resolved.groups
    return {
        group.name: len(group.nodes) * group.per_node - sum(used.get(group.name, 0) for used in others)
        for group in groups
    }


def _whole(rates: ReplicaRates, sketch: Sketch) -> dict[str, int]:
    """Accelerators denied to other services: whole nodes where the service takes them for itself."""
    given = rates.service.given
    alone = given.constraints.max_nodes is not None or given.guarantees.nodes is not None
    taken = footprint(rates, sketch)
    if not alone:
        return taken
    per_node = {group.name: group.per_node for group in rates.models.resolved.groups}
    return {name: -(-used // per_node[name]) * per_node[name] for name, used in taken.items()}
