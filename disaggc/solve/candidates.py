"""From capacities to the placement problem: options per service, what may not pair, what must be served.

The last place that knows both the spec's units and the problem's integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from disaggc.ir.plan import Role
from disaggc.resolve.model import ResolvedService, ResolvedSpec
from disaggc.resolve.pairing import pair_refusal
from disaggc.solve.problem import Goal, GroupSpace, Load, Option, PlacementProblem, ServiceProblem
from disaggc.solve.rates import ROLES, Kind, ReplicaRates

_MICRO = 1_000_000
_MILLI = 1_000
MOST_TOK_PER_S = 1e9
"""Of a replica, prompts and output: beyond any accelerator, reached by constants next to nothing alone. With it the
throughput of thousands of replicas is a number the solver can hold."""
_SLACK = 999
"""Operating batches are the cap divided by a count, rounded; less than one sequence is not worth a replica."""


@dataclass(frozen=True, slots=True)
class Leeway:
    """How much of the linear model's capacity is trusted; less where its answers did not hold up when predicted."""

    prefill: float = 1.0
    decode: float = 1.0


FULL = Leeway()


def placement_problem(
    resolved: ResolvedSpec, rates: tuple[ReplicaRates, ...], leeway: Leeway = FULL
) -> PlacementProblem:
    """The whole problem; services in the order of `rates`."""
    groups = tuple(
        GroupSpace(
            group.name,
            len(group.nodes),
            group.per_node,
            round(group.price.per_hour * _MILLI) if group.price is not None else _MILLI * group.per_node,
        )
        for group in resolved.groups
    )
    goal: Goal = resolved.spec.optimize
    return PlacementProblem(tuple(_service(one, goal, leeway) for one in rates), groups, goal)


def allowed_roles(service: ResolvedService) -> tuple[Role, ...]:
    """Roles its mode leaves open."""
    match service.mode:
        case "auto":
            return ROLES
        case "colocated":
            return (Role.COLOCATED,)
        case "disaggregated" | "flexible":
            return (Role.PREFILL, Role.DECODE)


def _service(rates: ReplicaRates, goal: Goal, leeway: Leeway) -> ServiceProblem:
    service = rates.service
    options = tuple(
        sorted((o for kind in rates.kinds for o in _options(rates, kind, leeway)), key=lambda o: o.key)
    )
    given = service.given
    exact = tuple(
        (role, choices.replicas)
        for role, choices in (
            (Role.PREFILL, service.prefill),
            (Role.DECODE, service.decode),
            (Role.COLOCATED, service.colocated),
        )
        if choices.replicas is not None
    )
    floor = given.guarantees.rate
    return ServiceProblem(
        name=service.name,
        options=options,
        forbidden=tuple(_forbidden(service, options)),
        loads=tuple(_load(variant, goal) for variant in rates.variants),
        tokens=max(1, round(_tokens(service))),
        priority=given.priority,
        spare=given.constraints.spare_replicas,
        exact=exact,
        max_nodes=given.constraints.max_nodes,
        min_nodes=given.guarantees.nodes,
        floor=None if floor is None else math.ceil(floor * _MICRO),
    )


def _options(rates: ReplicaRates, kind: Kind, leeway: Leeway) -> Iterator[Option]:
    role, name, shape = kind
    vendor = rates.group(kind).accelerator.vendor
    variants = range(len(rates.variants))
    if role is Role.PREFILL:
        previous: tuple[int, ...] = ()
        for pool in _pool_sizes(rates.most(kind)):
            each = tuple(int(_micro(rates, kind, (None, pool, v)) * leeway.prefill) for v in variants)
            if any(each) and each != previous:
                latency = round(rates.seconds(kind, None) * _MICRO)
                yield Option(role, name, vendor, shape, 0, each, latency, least=pool)
            previous = each
        return
    slots = rates.slots(kind) * leeway.decode
    for batch in rates.points(kind):
        if batch > slots:
            continue
        each = tuple(int(_micro(rates, kind, (batch, 1, v))) for v in variants)
        latency = round(rates.seconds(kind, batch) * _MICRO)
        yield Option(role, name, vendor, shape, int(batch * _MILLI), each, latency, slots=int(slots * _MILLI))


def _pool_sizes(most: int) -> Iterator[int]:
    """A larger pool waits less at the same load, so its replicas carry more each."""
    size = 1
    while size <= most:
        yield size
        size *= 2


def _micro(rates: ReplicaRates, kind: Kind, point: tuple[float | None, int, int]) -> float:
    """Micro-requests per second of a replica; zero where a bound breaks."""
    batch, pool, variant = point
    found = rates.at(kind, batch, pool=pool, variant=variant)
    most = MOST_TOK_PER_S / _tokens(rates.variants[variant])
    return min(found.rate.value, most) * _MICRO if found.feasible else 0.0


def _forbidden(service: ResolvedService, options: tuple[Option, ...]) -> Iterator[tuple[int, int]]:
    """Pairs that vLLM would refuse at the first request; a flexible pool is one group and one shape."""
    for i, first in enumerate(options):
        for j, second in enumerate(options):
            if first.role is not Role.PREFILL or second.role is not Role.DECODE:
                continue
            apart = (first.group, first.shape) != (second.group, second.shape)
            if (service.mode == "flexible" and apart) or (
                first.vendor == second.vendor and pair_refusal(service, first.shape, second.shape) is not None
            ):
                yield i, j


def _load(service: ResolvedService, goal: Goal) -> Load:
    """What the layout must carry. With a cap the client holds requests back, so the rate is a ceiling, not a demand."""
    classes = service.classes
    rate = None if any(c.rate is None for c in classes) else sum(c.rate or 0.0 for c in classes)
    cap = None if any(c.concurrency is None for c in classes) else sum(c.concurrency or 0 for c in classes)
    open_loop = rate is not None and all(c.concurrency is None for c in classes)
    bounded = any(b.metric in ("ttft", "e2e") for c in classes for b in c.bounds)
    return Load(
        offered=None if rate is None else math.floor(rate * _MICRO),
        in_flight=None if cap is None else cap * _MILLI + _SLACK,
        must_serve=open_loop and (bounded or goal != "throughput"),
        hold=None if cap is None or goal == "throughput" else cap * _MILLI - _SLACK,
    )


def _tokens(service: ResolvedService) -> float:
    """Prompt and output tokens of a mean request."""
    weights = [c.rate if c.rate is not None else float(c.concurrency or 1) for c in service.classes]
    each = [c.isl.mean + c.osl.mean for c in service.classes]
    return sum(w * t for w, t in zip(weights, each, strict=True)) / sum(weights)
