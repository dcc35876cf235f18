"""Solves a program with OR-tools CP-SAT: the only module that knows the library.

Reproducible by construction: fixed seed, one worker, limits in deterministic time. Never trusts an "infeasible" that
presolve alone found (or-tools issues 5274 and 5295 report false ones): it is confirmed with presolve off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ortools.sat.python import cp_model

from disaggc.solve.program import Aim, Program, Row, Terms

SEED = 20_26
Answer = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to look, in the solver's deterministic seconds (about one second of one core each).

    relative_gap: how far from the bound an answer may be; the inputs are never known better than this. tie_break_s: for
    each of the later aims, which only choose among equals.
    """

    deterministic_s: float = 20.0
    tie_break_s: float = 0.5
    relative_gap: float = 1e-4


@dataclass(frozen=True, slots=True)
class Answered:
    """values: one per variable, empty without an answer. status, objective, bound: of the first aim (minimised)."""

    status: Answer
    values: tuple[int, ...] = ()
    objective: float = 0.0
    bound: float = 0.0
    aims: tuple[int, ...] = ()
    """Value of each aim in the answer."""


def solve_program(program: Program, limits: Limits) -> Answered:
    """Lexicographic optimum: each aim in turn, its value then kept; a plain feasibility question without aims."""
    model, variables = _model(program, program.rows)
    aims = [aim for aim in program.aims if aim.terms] or [Aim("any", ())]
    reached: list[int] = []
    first: tuple[float, float] = (0.0, 0.0)
    proved = False
    values: tuple[int, ...] = ()
    for position, aim in enumerate(aims):
        expression = _expression(aim.terms, variables)
        model.minimize(expression)
        if values:
            model.proto.clear_solution_hint()
            for variable, value in zip(variables, values, strict=True):
                model.add_hint(variable, value)
        first_aim = position == 0
        seconds = limits.deterministic_s if first_aim else limits.tie_break_s
        solver = _solver(seconds, limits.relative_gap if first_aim else 0.0)
        status = solver.solve(model)
        if status == cp_model.INFEASIBLE and position == 0:
            return Answered(_confirm_infeasible(model, limits))
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            if position == 0:
                return Answered("unknown")
            break
        values = tuple(solver.value(variable) for variable in variables)
        value = value_of(aim.terms, values)
        reached.append(value)
        if position == 0:
            proved = status == cp_model.OPTIMAL
            first = (float(value), solver.best_objective_bound if aim.terms else 0.0)
        model.add(expression <= value)
    return Answered("optimal" if proved else "feasible", values, *first, tuple(reached))


def feasible(program: Program, rows: list[Row], limits: Limits) -> Answer:
    """Whether these rows of the program can hold together."""
    model, _ = _model(program, rows)
    status = _solver(limits.deterministic_s, limits.relative_gap).solve(model)
    if status == cp_model.INFEASIBLE:
        return _confirm_infeasible(model, limits)
    return "optimal" if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else "unknown"


def value_of(terms: Terms, values: tuple[int, ...]) -> int:
    """sum(coefficient x value)."""
    return sum(coefficient * values[variable] for variable, coefficient in terms)


def _expression(terms: Terms, variables: list[cp_model.IntVar]) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.weighted_sum([variables[v] for v, _ in terms], [c for _, c in terms])


def _model(program: Program, rows: list[Row]) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
    model = cp_model.CpModel()
    variables = [model.new_int_var(0, upper, "") for upper in program.upper]
    for row in rows:
        low = cp_model.INT_MIN if row.low is None else row.low
        high = cp_model.INT_MAX if row.high is None else row.high
        if row.terms:
            model.add_linear_constraint(_expression(row.terms, variables), low, high)
        elif low > 0 or high < 0:
            model.add_bool_or([])
    return model, variables


def _solver(deterministic_s: float, relative_gap: float, *, presolve: bool = True) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.random_seed = SEED
    solver.parameters.num_workers = 1
    # The program is linear: with its full relaxation 0.1 s prove what 20 s of search did not.
    solver.parameters.linearization_level = 2
    solver.parameters.max_deterministic_time = deterministic_s
    solver.parameters.relative_gap_limit = relative_gap
    solver.parameters.cp_model_presolve = presolve
    return solver


def _confirm_infeasible(model: cp_model.CpModel, limits: Limits) -> Answer:
    status = _solver(limits.deterministic_s, limits.relative_gap, presolve=False).solve(model)
    if status == cp_model.INFEASIBLE:
        return "infeasible"
    return "unknown"
