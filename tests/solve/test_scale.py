"""Placement problems of 40, 128 and 1,024 accelerators are solved to proven optimality."""

from __future__ import annotations

import pytest

from disaggc.ir.plan import Role, Shape
from disaggc.solve.cpsat import Limits, solve_program
from disaggc.solve.formulate import formulate
from disaggc.solve.problem import Goal, GroupSpace, Load, Option, PlacementProblem, ServiceProblem

GOALS: tuple[Goal, ...] = ("throughput", "cost", "nodes", "latency")


def options(group: str, nodes: int) -> list[Option]:
    """Two shapes per role with batches of a closed loop of 96 requests per node."""
    found = []
    for tp in (4, 8):
        for pool in (1, 2, 4, 8, 16):
            rate = int(215_000 * tp * (1 + 0.02 * pool))
            found.append(
                Option(Role.PREFILL, group, "amd", Shape(tp=tp), 0, (rate,), 900_000 // tp, least=pool)
            )
        for parts in (1, 2, 3, 5, 8, 12, 20, 32):
            batch = 96 * nodes / min(parts * nodes / 4 + 1, nodes * 8 // tp)
            step = 0.02 + 0.00015 * batch * 8 / tp
            for role, cost in ((Role.DECODE, 1.0), (Role.COLOCATED, 1.25)):
                rate = int(1e6 * batch / (1024 * step * cost))
                latency = int(1024e6 * step * cost)
                found.append(Option(role, group, "amd", Shape(tp=tp), int(batch * 1000), (rate,), latency))
    return found


def problem(nodes: int, goal: Goal, spread: tuple[int, int]) -> PlacementProblem:
    """`spread`: node groups, services."""
    groups, services = spread
    spaces = tuple(GroupSpace(f"g{k}", nodes // groups, 8, 20_000 + 1_000 * k) for k in range(groups))
    rate = int(nodes * 900_000 / services)
    load = Load(rate, None, must_serve=goal != "throughput")
    return PlacementProblem(
        tuple(
            ServiceProblem(
                f"s{i}", tuple(o for g in spaces for o in options(g.name, g.nodes)), (), (load,), 2048
            )
            for i in range(services)
        ),
        spaces,
        goal,
    )


CASES = [
    *((nodes, spread, goal) for nodes in (5, 16, 128) for spread in ((1, 1), (2, 2)) for goal in GOALS),
    (128, (4, 3), "throughput"),
    (128, (4, 3), "cost"),
]


@pytest.mark.parametrize(("nodes", "spread", "goal"), CASES)
def test_the_optimum_is_proved(nodes: int, spread: tuple[int, int], goal: Goal) -> None:
    program = formulate(problem(nodes, goal, spread))
    answer = solve_program(program, Limits())
    assert answer.status == "optimal"
    assert abs(answer.objective - answer.bound) <= 1e-4 * abs(answer.objective)
