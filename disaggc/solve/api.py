"""Solves a resolved spec: capacities, linear optimum, prediction of the promising layouts, places.

The order of the solver's steps and nothing else; every step is a module of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from disaggc.perf.models import Models
from disaggc.solve.assemble import assemble
from disaggc.solve.attempt import Attempt, attempt, rates_of
from disaggc.solve.conflict import explain
from disaggc.solve.cpsat import Answered, Limits
from disaggc.solve.locked import keep
from disaggc.solve.problem import Goal
from disaggc.solve.solution import Infeasible, Report, Solution, Status, Unproven
from disaggc.spec.lock import Lock

_UNIT = {"throughput": -1e-6, "latency": 1e-6, "cost": 1e-3, "nodes": 1.0}
"""From the program's first aim to tokens/s, seconds, currency per hour, nodes."""


def solve_spec(
    models: Models,
    *,
    lock: Lock | None = None,
    limits: Limits | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Solution | Infeasible | Unproven:
    """A layout and a place for every service, or why there is none (DGC501), or that it is not known (DGC502).

    With a lock, its layout and places are kept as long as they are feasible; what leaving them would gain is DGC702.
    """
    started = clock()
    limits = limits or Limits()
    rates = rates_of(models)
    found = attempt(rates, limits)
    if lock is not None:
        found = keep(rates, lock, found)
    if found.chosen is None:
        return explain(models, found, limits)
    return _solution(found, started, clock)


def _solution(found: Attempt, started: float, clock: Callable[[], float]) -> Solution:
    assert found.chosen is not None  # noqa: S101 - both callers have looked
    goal: Goal = found.rates[0].models.resolved.spec.optimize
    services = tuple(
        assemble(
            rates,
            choice,
            best,
            goal=goal,
            replicas=tuple(replica for name, replica in found.located if name == rates.service.name),
        )
        for rates, choice, best in zip(found.rates, found.choices, found.chosen, strict=True)
    )
    return Solution(services, _report(found, goal, clock() - started), found.diagnostics)


def _report(found: Attempt, goal: Goal, wall_s: float) -> Report:
    answered: Answered = found.answered
    unit = _UNIT[goal]
    objective, bound = answered.objective * unit, answered.bound * unit
    gap = abs(bound - objective) / abs(bound) if bound else 0.0
    solved: Status = "optimal" if answered.status == "optimal" else "feasible"
    status: Status = "locked" if found.locked else solved
    return Report(status, objective, bound, gap, wall_s, refined=found.refined)
