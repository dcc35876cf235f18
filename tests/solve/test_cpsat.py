from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from disaggc.ir.plan import Role, Shape
from disaggc.solve.cpsat import Limits, feasible, solve_program
from disaggc.solve.formulate import formulate
from disaggc.solve.problem import GroupSpace, Load, Option, PlacementProblem, ServiceProblem
from tests.effort import examples
from tests.solve import placement_oracle as oracle

EXACT = Limits(relative_gap=0.0)


def option(
    role: Role, tp: int = 8, *, group: str = "g", batch: int = 0, rate: int = 1000, latency: int = 10
) -> Option:
    return Option(role, group, "amd", Shape(tp=tp), batch, (rate,), latency)


def solve(problem: PlacementProblem):
    return solve_program(formulate(problem), EXACT)


def one(service: ServiceProblem, nodes: int = 5, goal: str = "throughput") -> PlacementProblem:
    return PlacementProblem((service,), (GroupSpace("g", nodes, 8, 24_000),), goal)


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    pair = draw(st.booleans())
    groups = tuple(
        GroupSpace(
            f"g{k}",
            draw(st.integers(1, 2 if pair else 3)),
            draw(st.sampled_from([1, 2, 3] if pair else [1, 2, 3, 4])),
            draw(st.integers(1, 5)),
        )
        for k in range(2 if pair else 1)
    )
    vendors = [draw(st.sampled_from(["amd", "nvidia"])) for _ in groups]
    scenarios = draw(st.integers(1, 2))
    services = tuple(
        draw(_services(f"s{k}", (groups, tuple(vendors), scenarios)))
        for k in range(1 if pair else draw(st.integers(1, 2)))
    )
    return PlacementProblem(
        services, groups, draw(st.sampled_from(["throughput", "latency", "cost", "nodes"]))
    )


@st.composite
def _services(draw: st.DrawFn, name: str, around) -> ServiceProblem:
    groups, vendors, scenarios = around
    options = []
    for role in (Role.PREFILL, Role.DECODE, Role.COLOCATED):
        for _ in range(draw(st.integers(1, 2))):
            where = draw(st.integers(0, len(groups) - 1))
            batch = 0 if role is Role.PREFILL else draw(st.integers(1, 4)) * 1000
            rates = tuple(draw(st.integers(1, 9)) * 100 for _ in range(scenarios))
            size = draw(st.integers(1, 4))
            options.append(
                Option(
                    role,
                    groups[where].name,
                    vendors[where],
                    Shape(tp=size),
                    batch,
                    rates,
                    draw(st.integers(0, 50)),
                    least=draw(st.integers(1, 2)),
                )
            )
    prefill = [i for i, o in enumerate(options) if o.role is Role.PREFILL]
    decode = [i for i, o in enumerate(options) if o.role is Role.DECODE]
    pairs = draw(st.sets(st.tuples(st.sampled_from(prefill), st.sampled_from(decode)), max_size=1))
    loads = tuple(
        Load(
            draw(st.none() | st.integers(1, 20).map(lambda n: n * 100)),
            draw(st.none() | st.integers(1, 12).map(lambda n: n * 1000)),
            must_serve=draw(st.booleans()),
            hold=draw(st.none() | st.integers(1, 9).map(lambda n: n * 1000)),
        )
        for _ in range(scenarios)
    )
    return ServiceProblem(
        name,
        tuple(options),
        tuple(sorted(pairs)),
        loads,
        draw(st.integers(1, 9)),
        priority=draw(st.integers(0, 1)),
        spare=draw(st.sampled_from([0, 0, 0, 1])),
        exact=tuple(
            draw(
                st.dictionaries(st.sampled_from([Role.PREFILL, Role.DECODE]), st.integers(1, 2), max_size=1)
            ).items()
        ),
        max_nodes=draw(st.none() | st.integers(1, 3)),
        floor=draw(st.none() | st.integers(1, 5).map(lambda n: n * 100)),
    )


@settings(max_examples=examples(100), deadline=None)
@given(problems())
def test_the_answer_is_the_best_of_all_count_vectors(problem: PlacementProblem) -> None:
    assume(math.prod(len(own) for own in oracle.layouts(problem)) <= 20_000)
    answer = solve(problem)
    expected = oracle.best(problem)
    if expected is None:
        assert answer.status == "infeasible"
    else:
        assert answer.status == "optimal"
        assert answer.aims[: len(expected)] == expected


@settings(max_examples=examples(25), deadline=None)
@given(problems(), st.integers(0, 1))
def test_more_nodes_never_worsen_the_first_aim(problem: PlacementProblem, which: int) -> None:
    before = solve(problem)
    assume(before.status == "optimal")
    groups = list(problem.groups)
    where = which % len(groups)
    groups[where] = replace(groups[where], nodes=groups[where].nodes + 1)
    after = solve(replace(problem, groups=tuple(groups)))
    assert after.status == "optimal"
    assert after.aims[0] <= before.aims[0]


@settings(max_examples=examples(25), deadline=None)
@given(problems())
def test_raising_a_node_budget_never_makes_feasible_infeasible(problem: PlacementProblem) -> None:
    assume(solve(problem).status == "optimal")
    raised = tuple(
        replace(s, max_nodes=s.max_nodes + 1 if s.max_nodes is not None else None) for s in problem.services
    )
    assert solve(replace(problem, services=raised)).status == "optimal"


def test_prefill_and_decode_are_balanced_on_five_nodes() -> None:
    service = ServiceProblem(
        "chat",
        (option(Role.PREFILL, rate=4_000), option(Role.DECODE, batch=120_000, rate=1_000)),
        (),
        (Load(None, 480_000, must_serve=False),),
        9216,
    )
    answer = solve(one(service))
    program = formulate(one(service))
    assert [answer.values[v] for v in program.counts[0]] == [1, 4]
    assert answer.objective == -4_000 * 9216
    assert answer.bound == answer.objective


def test_a_demand_no_cluster_meets_is_infeasible_and_holds_without_it() -> None:
    service = ServiceProblem(
        "chat",
        (option(Role.COLOCATED, batch=1000, rate=1_000),),
        (),
        (Load(6_000, None, must_serve=True),),
        1,
    )
    program = formulate(one(service))
    assert solve_program(program, EXACT).status == "infeasible"
    rest = [row for row in program.rows if row.tag is None or row.tag.kind != "rate"]
    assert feasible(program, rest, EXACT) == "optimal"


def test_a_limit_that_is_too_short_is_unknown_not_infeasible() -> None:
    service = ServiceProblem(
        "chat",
        tuple(option(Role.COLOCATED, tp, batch=tp * 1000, rate=tp * 997) for tp in (1, 2, 3, 5, 7)),
        (),
        (Load(None, None, must_serve=False),),
        1,
    )
    answer = solve_program(formulate(one(service, 100)), Limits(deterministic_s=0.0, relative_gap=0.0))
    assert answer.status == "unknown"


def test_equal_layouts_have_one_answer() -> None:
    service = ServiceProblem(
        "chat",
        (
            option(Role.COLOCATED, 8, batch=1000),
            Option(Role.COLOCATED, "h", "amd", Shape(tp=8), 1000, (1000,), 10),
        ),
        (),
        (Load(1000, None, must_serve=True),),
        1,
    )
    groups = (GroupSpace("g", 2, 8, 1), GroupSpace("h", 2, 8, 1))
    answers = {solve(PlacementProblem((service,), groups, "nodes")).values for _ in range(3)}
    assert len(answers) == 1
