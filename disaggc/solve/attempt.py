"""One attempt at a spec: linear optimum, prediction, places; with less trust in the linear model while it misleads.

Shared by the solver proper and by conflict, which asks the same of relaxed specs. Says nothing to the user.
"""

from __future__ import annotations

from dataclasses import dataclass

from disaggc.diagnostics import Diagnostic
from disaggc.perf.models import Models
from disaggc.solve.assemble import located
from disaggc.solve.candidates import FULL, Leeway, placement_problem
from disaggc.solve.choose import Choice, choose, linear_sketches
from disaggc.solve.cpsat import Answered, Limits, solve_program
from disaggc.solve.formulate import formulate
from disaggc.solve.placement import Located
from disaggc.solve.problem import Goal
from disaggc.solve.rank import Weighed
from disaggc.solve.rates import ROLES, ReplicaRates
from disaggc.solve.sketch import Sketch

_LEEWAYS = (FULL, Leeway(0.85, 0.9), Leeway(0.7, 0.75), Leeway(0.5, 0.5))
"""Tried in turn: the linear model ignores queues between the roles, so near full load it promises too much."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of it. chosen: one layout per service, None when not every service has one.

    proved: there is no layout (only when chosen is None). refined: a neighbour of the linear optimum was better.
    """

    rates: tuple[ReplicaRates, ...]
    answered: Answered
    choices: tuple[Choice, ...]
    chosen: tuple[Weighed, ...] | None
    located: tuple[Located, ...] = ()
    proved: bool = False
    refined: bool = False
    locked: bool = False
    diagnostics: tuple[Diagnostic, ...] = ()


def rates_of(models: Models) -> tuple[ReplicaRates, ...]:
    """Capacities of every service, in the order of the spec."""
    resolved = models.resolved
    found: list[ReplicaRates] = []
    for service in resolved.services:
        others = [s for scenario in resolved.scenarios for s in scenario.services if s.name == service.name]
        found.append(ReplicaRates.of(models, (service, *others), ROLES))
    return tuple(found)


def attempt(rates: tuple[ReplicaRates, ...], limits: Limits) -> Attempt:
    """The best layout for every service, or whether there is none."""
    resolved = rates[0].models.resolved
    goal: Goal = resolved.spec.optimize
    answered = Answered("unknown")
    choices: tuple[Choice, ...] = ()
    for leeway in _LEEWAYS:
        problem = placement_problem(resolved, rates, leeway)
        program = formulate(problem)
        here = solve_program(program, limits)
        if leeway is FULL:
            answered = here
        linear: tuple[Sketch | None, ...] = (None,) * len(rates)
        if here.values:
            linear = linear_sketches(problem, program, here.values)
        elif leeway is not FULL:
            break
        tried = choose(rates, goal, linear)
        if leeway is FULL or all(choice.best is not None for choice in tried):
            choices = tried
        found = _placed(rates, answered, choices)
        if found is not None:
            return found
        if all(choice.complete or choice.best is not None for choice in tried) and len(rates) == 1:
            break
    return Attempt(rates, answered, choices, None, proved=_proved(answered, choices))


def _placed(
    rates: tuple[ReplicaRates, ...], answered: Answered, choices: tuple[Choice, ...]
) -> Attempt | None:
    chosen = tuple(choice.best for choice in choices if choice.best is not None)
    if len(chosen) != len(choices) or not chosen:
        return None
    places = located(rates, tuple(best.sketch for best in chosen))
    if places is None:
        chosen = tuple(_linear_of(choice) or best for choice, best in zip(choices, chosen, strict=True))
        places = located(rates, tuple(best.sketch for best in chosen))
        if places is None:
            return None
    refined = any(best.sketch != choice.linear for best, choice in zip(chosen, choices, strict=True))
    return Attempt(rates, answered, choices, chosen, located=places, refined=refined)


def _linear_of(choice: Choice) -> Weighed | None:
    return next((w for w in choice.ranked if w.sketch == choice.linear and w.holds and w.allowed), None)


def _proved(answered: Answered, choices: tuple[Choice, ...]) -> bool:
    """The linear program has no answer, or every layout of the one service was predicted and none holds."""
    if answered.status == "infeasible":
        return True
    return len(choices) == 1 and choices[0].complete and choices[0].best is None
