"""Every count vector of a small placement problem, weighed one by one: what the solver's answer is compared with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache

from disaggc.ir.plan import Role
from disaggc.solve.problem import Option, PlacementProblem, ServiceProblem

Chosen = tuple[tuple[int, int], ...]


def best(problem: PlacementProblem) -> tuple[int, ...] | None:
    """The lexicographically best aims (minimised, as the program states them), None when nothing is feasible."""
    found: tuple[int, ...] | None = None
    for chosen in itertools.product(*layouts(problem)):
        nodes = _nodes(problem, chosen)
        if nodes is None:
            continue
        score = _score(problem, chosen, nodes)
        if found is None or score < found:
            found = score
    return found


def layouts(problem: PlacementProblem) -> list[list[Chosen]]:
    """Every valid layout of every service on its own."""
    return [list(_layouts(problem, service)) for service in problem.services]


def _layouts(problem: PlacementProblem, service: ServiceProblem) -> Iterator[Chosen]:
    for roles in ((Role.PREFILL, Role.DECODE), (Role.COLOCATED,)):
        choices = [
            list(_pool(problem, service, role, group.name)) for role in roles for group in problem.groups
        ]
        for combination in itertools.product(*choices):
            chosen = tuple(sorted(pick for pick in combination if pick is not None))
            if _valid(service, chosen, roles):
                yield chosen


def _pool(problem: PlacementProblem, service: ServiceProblem, role: Role, group: str):
    yield None
    space = problem.group(group)
    for position, option in enumerate(service.options):
        if option.role is role and option.group == group:
            most = space.nodes * space.per_node // option.accelerators
            for count in range(option.least, most + 1):
                yield position, count


def _valid(service: ServiceProblem, chosen: Chosen, roles: tuple[Role, ...]) -> bool:
    options = service.options
    for role in roles:
        total = sum(n for i, n in chosen if options[i].role is role)
        if total < 1 + service.spare:
            return False
        if dict(service.exact).get(role, total) != total:
            return False
    used = {i for i, _ in chosen}
    if any(a in used and b in used for a, b in service.forbidden):
        return False
    if len(roles) == 2:
        sides = [{options[i].vendor for i in used if options[i].role is role} for role in roles]
        if sides[0] != sides[1]:
            return False
    return all(served_of(service, chosen, k) is not None for k in range(len(service.loads)))


def served_of(service: ServiceProblem, chosen: Chosen, scenario: int) -> int | None:
    """Rate served in a scenario, None when a demand is not met."""
    options, load = service.options, service.loads[scenario]

    def supply(role: Role, vendor: str) -> int:
        members = [
            (options[i], n) for i, n in chosen if options[i].role is role and options[i].vendor == vendor
        ]
        largest = max((o.rates[scenario] for o, _ in members), default=0)
        return max(0, sum(o.rates[scenario] * n for o, n in members) - service.spare * largest)

    vendors = {o.vendor for o in options}
    if any(options[i].role is Role.COLOCATED for i, _ in chosen):
        served = sum(supply(Role.COLOCATED, v) for v in vendors)
    else:
        served = sum(min(supply(Role.PREFILL, v), supply(Role.DECODE, v)) for v in vendors)
    if load.offered is not None:
        served = min(served, load.offered)
        if load.must_serve and served < load.offered:
            return None
    running = sum(options[i].batch * n for i, n in chosen if options[i].role is not Role.PREFILL)
    if load.in_flight is not None and scenario == 0 and running > load.in_flight:
        return None
    if load.hold is not None:
        holding = sum((options[i].slots or options[i].batch) * n for i, n in chosen if options[i].batch)
        met = load.offered is not None and served >= load.offered
        if holding < load.hold and not met:
            return None
    if service.floor is not None and served < service.floor:
        return None
    return served


def _nodes(problem: PlacementProblem, chosen: tuple[Chosen, ...]) -> dict[str, int] | None:
    """Nodes used per group, None when they do not suffice."""
    used: dict[str, int] = {}
    for group in problem.groups:
        shares: list[list[Option]] = []
        common: list[Option] = []
        for service, picks in zip(problem.services, chosen, strict=True):
            here = [
                service.options[i]
                for i, n in picks
                for _ in range(n)
                if service.options[i].group == group.name
            ]
            if service.exclusive:
                shares.append(here)
            else:
                common.extend(here)
        total = sum(bins(tuple(o.accelerators for o in share), group.per_node) for share in [*shares, common])
        if total > group.nodes:
            return None
        used[group.name] = total
    for service, picks in zip(problem.services, chosen, strict=True):
        own = 0
        for group in problem.groups:
            here = tuple(
                service.options[i].accelerators
                for i, n in picks
                for _ in range(n)
                if service.options[i].group == group.name
            )
            own += bins(here, group.per_node)
        if service.max_nodes is not None and own > service.max_nodes:
            return None
    return used


@cache
def bins(sizes: tuple[int, ...], per_node: int) -> int:
    """Fewest nodes for these sizes, by trying every assignment in falling order."""
    whole = sum(-(-size // per_node) for size in sizes if size > per_node)
    inside = sorted((size for size in sizes if size <= per_node), reverse=True)
    fewest = -(-sum(inside) // per_node)
    for nodes in range(fewest, len(inside) + 1):
        if _fits(tuple(inside), (per_node,) * nodes):
            return whole + nodes
    raise AssertionError


@cache
def _fits(sizes: tuple[int, ...], room: tuple[int, ...]) -> bool:
    """Kept: the ways to fill nodes are many, what they leave free (`room`, ascending) is soon the same."""
    if not sizes:
        return True
    for free in set(room):
        if free >= sizes[0]:
            left = list(room)
            left[left.index(free)] -= sizes[0]
            if _fits(sizes[1:], tuple(sorted(left))):
                return True
    return False


def _score(problem: PlacementProblem, chosen: tuple[Chosen, ...], nodes: dict[str, int]) -> tuple[int, ...]:
    levels = sorted({s.priority for s in problem.services}, reverse=True)
    by_level = [[k for k, s in enumerate(problem.services) if s.priority == level] for level in levels]
    latency = [sum(_latency(problem.services[k], chosen[k]) for k in level) for level in by_level]
    head: list[int] = []
    match problem.goal:
        case "throughput":
            for level in by_level:
                rates = [(problem.services[k], served_of(problem.services[k], chosen[k], 0)) for k in level]
                head.append(-sum(service.tokens * (rate or 0) for service, rate in rates))
        case "cost":
            head.append(sum(group.price * nodes[group.name] for group in problem.groups))
        case "nodes":
            head.append(sum(nodes.values()))
        case "latency":
            pass
    return (*head, *latency)


def _latency(service: ServiceProblem, chosen: Chosen) -> int:
    total = 0
    for role in Role:
        total += max(
            (service.options[i].latency for i, _ in chosen if service.options[i].role is role), default=0
        )
    return total
