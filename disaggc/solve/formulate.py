"""The placement problem written as an integer linear program.

Every indicator is linear, with the tightest constant the bounds allow. Knows no solver library.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from disaggc.ir.plan import Role
from disaggc.solve.problem import Load, Option, PlacementProblem, ServiceProblem
from disaggc.solve.program import Aim, Program, Tag, Terms
from disaggc.solve.space import node_counts

MODES = ("disaggregated", "colocated")


@dataclass(frozen=True, slots=True)
class _ServiceVariables:
    count: tuple[int, ...]
    used: tuple[int, ...]
    mode: dict[str, int]
    served: Terms
    latency: Terms


def formulate(problem: PlacementProblem) -> Program:
    """The whole program. Goals: the stated one, then latency, then the smallest and canonically first layout."""
    program = Program()
    services = [_service(program, problem, service) for service in problem.services]
    program.counts = [variables.count for variables in services]
    nodes = node_counts(program, problem)
    _aims(program, problem, (services, nodes))
    return program


def _limit(problem: PlacementProblem, option: Option) -> int:
    group = problem.group(option.group)
    if option.accelerators > group.per_node:
        return group.nodes // -(-option.accelerators // group.per_node)
    return group.nodes * (group.per_node // option.accelerators)


def _service(program: Program, problem: PlacementProblem, service: ServiceProblem) -> _ServiceVariables:
    limits = [_limit(problem, option) for option in service.options]
    count = tuple(program.variable(limit) for limit in limits)
    used = tuple(program.variable(min(1, limit)) for limit in limits)
    mode = {name: program.variable(1) for name in MODES}
    program.equal([(mode[name], 1) for name in MODES], 1)
    for position, limit in enumerate(limits):
        program.at_most([(count[position], 1), (used[position], -limit)], 0)
        program.at_most([(used[position], service.options[position].least), (count[position], -1)], 0)
    for first, second in service.forbidden:
        program.at_most([(used[first], 1), (used[second], 1)], 1)
    _choices(program, service, (count, used, mode))
    served = [
        _flows(program, service, (count, used, scenario, load)) for scenario, load in enumerate(service.loads)
    ]
    latency = tuple(_latency(program, service, used))
    return _ServiceVariables(count, used, mode, served[0], latency)


def _choices(
    program: Program,
    service: ServiceProblem,
    variables: tuple[tuple[int, ...], tuple[int, ...], dict[str, int]],
) -> None:
    count, used, mode = variables
    exact = dict(service.exact)
    for role in (Role.PREFILL, Role.DECODE, Role.COLOCATED):
        of_role = [i for i, option in enumerate(service.options) if option.role is role]
        active = mode["colocated" if role is Role.COLOCATED else "disaggregated"]
        for group in sorted({service.options[i].group for i in of_role}):
            inside = [(used[i], 1) for i in of_role if service.options[i].group == group]
            program.at_most([*inside, (active, -1)], 0)
        program.at_least([*((used[i], 1) for i in of_role), (active, -1)], 0)
        if service.spare:
            tag = Tag(service.name, "spare")
            program.at_least([*((count[i], 1) for i in of_role), (active, -1 - service.spare)], 0, tag)
        if role in exact:
            tag = Tag(service.name, f"replicas-{role.value}")
            program.equal([*((count[i], 1) for i in of_role), (active, -exact[role])], 0, tag)
    for vendor in sorted({option.vendor for option in service.options}):
        sides = [
            [
                used[i]
                for i, option in enumerate(service.options)
                if option.role is role and option.vendor == vendor
            ]
            for role in (Role.PREFILL, Role.DECODE)
        ]
        for here, there in (sides, sides[::-1]):
            for variable in here:
                program.at_most([(variable, 1), *((other, -1) for other in there)], 0)


def _flows(
    program: Program, service: ServiceProblem, state: tuple[tuple[int, ...], tuple[int, ...], int, Load]
) -> Terms:
    """Served rate of one scenario as the sum of one flow per vendor and one colocated flow."""
    count, used, scenario, load = state
    lanes = sorted({(option.mode, option.vendor) for option in service.options})
    served: list[tuple[int, int]] = []
    for mode, vendor in lanes:
        roles = (Role.COLOCATED,) if mode == "colocated" else (Role.PREFILL, Role.DECODE)
        members = {
            role: [i for i, o in enumerate(service.options) if o.role is role and o.vendor == vendor]
            for role in roles
        }
        if not all(members.values()):
            continue
        ceiling = min(
            sum(service.options[i].rates[scenario] * program.upper[count[i]] for i in group)
            for group in members.values()
        )
        flow = program.variable(ceiling if load.offered is None else min(ceiling, load.offered))
        served.append((flow, 1))
        for group in members.values():
            supply = [(count[i], -service.options[i].rates[scenario]) for i in group]
            if service.spare:
                supply.append((_largest(program, service, (group, used, scenario)), service.spare))
            program.at_most([(flow, 1), *supply], 0)
    _demand(program, service, (count, scenario, load, tuple(served)))
    return tuple(served)


def _largest(program: Program, service: ServiceProblem, state: tuple[list[int], tuple[int, ...], int]) -> int:
    members, used, scenario = state
    largest = program.variable(max(service.options[i].rates[scenario] for i in members))
    for i in members:
        program.at_most([(used[i], service.options[i].rates[scenario]), (largest, -1)], 0)
    return largest


def _demand(
    program: Program, service: ServiceProblem, state: tuple[tuple[int, ...], int, Load, Terms]
) -> None:
    count, scenario, load, served = state
    running = [
        (count[i], option.batch)
        for i, option in enumerate(service.options)
        if option.role is not Role.PREFILL
    ]
    if load.offered is not None:
        program.at_most(served, load.offered)
        if load.must_serve:
            program.at_least(served, load.offered, Tag(service.name, "rate", scenario))
    if load.in_flight is not None and scenario == 0:
        program.at_most(running, load.in_flight)
    if load.hold is not None:
        tag = Tag(service.name, "hold", scenario)
        served_all = program.variable(0 if load.offered is None else 1)
        program.at_least([*served, (served_all, -(load.offered or 0))], 0, tag)
        holding = [
            (count[i], option.slots or option.batch)
            for i, option in enumerate(service.options)
            if option.batch
        ]
        program.at_least([*holding, (served_all, load.hold)], load.hold, tag)
    if service.floor is not None:
        program.at_least(served, service.floor, Tag(service.name, "floor", scenario))


def _latency(program: Program, service: ServiceProblem, used: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    """One variable per role, at least the latency share of every option in use."""
    for role in (Role.PREFILL, Role.DECODE, Role.COLOCATED):
        members = [i for i, option in enumerate(service.options) if option.role is role]
        if not members:
            continue
        worst = program.variable(max(service.options[i].latency for i in members))
        for i in members:
            program.at_most([(used[i], service.options[i].latency), (worst, -1)], 0)
        yield worst, 1


def _aims(
    program: Program, problem: PlacementProblem, built: tuple[list[_ServiceVariables], dict[str, list[int]]]
) -> None:
    services, nodes = built
    every_node = [(n, 1) for group in problem.groups for n in nodes[group.name]]
    priorities = sorted({service.priority for service in problem.services}, reverse=True)
    by_priority = [[s for s, one in enumerate(problem.services) if one.priority == p] for p in priorities]
    latency = [Aim("latency", tuple(t for s in level for t in services[s].latency)) for level in by_priority]
    match problem.goal:
        case "throughput":
            for level in by_priority:
                terms = tuple(
                    (v, -c * problem.services[s].tokens) for s in level for v, c in services[s].served
                )
                program.aims.append(Aim("throughput", terms))
        case "cost":
            priced = tuple((n, group.price) for group in problem.groups for n in nodes[group.name])
            program.aims.append(Aim("cost", priced))
        case "nodes":
            program.aims.append(Aim("nodes", tuple(every_node)))
        case "latency":
            pass
    program.aims.extend(latency)
    program.aims.append(Aim("canonical", tuple(_canonical(program, problem, every_node))))


def _canonical(
    program: Program, problem: PlacementProblem, every_node: list[tuple[int, int]]
) -> Iterable[tuple[int, int]]:
    """Fewest nodes, then fewest accelerators, then distinct weights that leave one layout first."""
    weights = [1 + (position * 7919) % 9973 for position in range(sum(len(c) for c in program.counts))]
    reach = sum(max(weights) * program.upper[v] for counts in program.counts for v in counts) + 1
    accelerators = sum(group.nodes * group.per_node for group in problem.groups) + 1
    position = 0
    for s, service in enumerate(problem.services):
        for i, option in enumerate(service.options):
            yield program.counts[s][i], option.accelerators * reach + weights[position]
            position += 1
    for variable, _ in every_node:
        yield variable, accelerators * reach
