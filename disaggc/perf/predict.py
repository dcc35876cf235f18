"""Layout -> LayoutPrediction, and the ratio of two layouts whose errors move together. The solver's view of perf."""

from __future__ import annotations

import math
from collections.abc import Callable

from disaggc.ir.plan import Role
from disaggc.perf.case import Case, Point
from disaggc.perf.constants import Z90, carried_from
from disaggc.perf.demand import demand_of
from disaggc.perf.estimate import Basis, Estimate, weakest
from disaggc.perf.layout import (
    Bottleneck,
    ClassOutcome,
    Latency,
    Layout,
    LayoutPrediction,
    Metric,
    Violation,
)
from disaggc.perf.memory import NoFit
from disaggc.perf.models import DRAWS, Models
from disaggc.perf.spread import Measure, stretches
from disaggc.perf.stations import Sized
from disaggc.resolve.model import ResolvedService
from disaggc.units import Price

_FULL = 0.97
"""Prefill or network load from which it is named as what binds."""


def predict(
    models: Models, service: ResolvedService, layout: Layout, *, requests: float | None = None
) -> LayoutPrediction:
    """The steady state of a layout under the service's traffic, or a run of so many requests, with 80 % ranges.

    low and high of each number come from all constants at their hopeful and at their cautious end together, stretched
    by what published measurements say of such a range (`spread`).
    """
    sized: list[Sized] = []
    for pool in layout.pools:
        memory = models.memory(service, pool.group, pool.role, shape=pool.shape)
        if isinstance(memory, NoFit):
            return _impossible(layout, (str(memory),))
        sized.append(Sized(pool, memory))
    missing = [role.value for role in _wanted_roles(layout) if not layout.replicas(role)]
    if missing:
        return _impossible(layout, tuple(f"no {role} replica" for role in missing))
    pools = tuple(s for s in sized if s.pool.replicas)
    case = Case(models, service, pools, classes=demand_of(service), requests=requests)
    known = [models.constants(service, s.pool.group, s.pool.shape) for s in sized]
    basis = weakest(*(constants.basis for constants in known))
    number = _Numbers([case.at_corner(i) for i in range(3)], basis)
    likely = number.points[1]
    cost, currency = hourly_cost(layout)
    classes = tuple(_class_outcome(i, load.name, number) for i, load in enumerate(service.classes))
    total = number.of("flow", lambda p: p.total_tok_per_s)
    return LayoutPrediction(
        layout=layout,
        classes=classes,
        output_tok_per_s=number.of("flow", lambda p: p.output_tok_per_s),
        total_tok_per_s=total,
        tokens_per_cost=total.scaled(3600 / cost) if cost else None,
        cost_per_hour=cost,
        currency=currency,
        bottleneck=_bottleneck(case, likely),
        utilisation=_utilisation(case, likely),
        batches=_batches(layout, case, likely),
        violations=_violations(service, classes),
        carried_from=carried_from(known),
        case=case,
    )


def ratio(a: LayoutPrediction, b: LayoutPrediction, metric: Metric) -> Estimate:
    """Metric of a over metric of b (latencies: b over a), so that above 1 a is better.

    Both are evaluated at the same draws of the constants, so an error they share cancels; the range is that of the
    ratios, not the quotient of the ranges. Zero where a cannot run, infinite where only b cannot.
    """
    if a.case is None or b.case is None:
        value = 1.0 if a.case is b.case else (0.0 if a.case is None else math.inf)
        return Estimate(value, value, value, Basis.PRIOR)
    middle = _figure(a, a.case.at_corner(1), metric) / _figure(b, b.case.at_corner(1), metric)
    drawn = [
        math.log(_figure(a, a.case.at_draw(i), metric) / _figure(b, b.case.at_draw(i), metric))
        for i in range(DRAWS)
    ]
    low, high = _middle_80(drawn)
    basis = weakest(a.output_tok_per_s.basis, b.output_tok_per_s.basis)
    return Estimate(middle, min(middle, low), max(middle, high), basis)


def _middle_80(logs: list[float]) -> tuple[float, float]:
    """The 80 % range of a ratio from its logarithms at the draws: normal, but never beyond what was drawn."""
    mean = sum(logs) / len(logs)
    spread = Z90 * math.sqrt(sum((x - mean) ** 2 for x in logs) / (len(logs) - 1))
    return math.exp(max(min(logs), mean - spread)), math.exp(min(max(logs), mean + spread))


def hourly_cost(layout: Layout) -> tuple[float | None, str | None]:
    """Price per hour of the nodes a layout takes, whole nodes; None where one has no price or currencies differ."""
    accelerators: dict[str, int] = {}
    groups = {pool.group.name: pool.group for pool in layout.pools}
    for pool in layout.pools:
        name = pool.group.name
        accelerators[name] = accelerators.get(name, 0) + pool.replicas * pool.shape.accelerators
    total, currencies = 0.0, set()
    for name, count in accelerators.items():
        price: Price | None = groups[name].price
        if price is None:
            return None, None
        total += math.ceil(count / groups[name].per_node) * price.per_hour
        currencies.add(price.currency)
    return (total, currencies.pop()) if len(currencies) == 1 else (None, None)


def _wanted_roles(layout: Layout) -> tuple[Role, ...]:
    return (Role.COLOCATED,) if layout.mode == "colocated" else (Role.PREFILL, Role.DECODE)


def _impossible(layout: Layout, reasons: tuple[str, ...]) -> LayoutPrediction:
    none = Estimate(0.0, 0.0, 0.0)
    cost, currency = hourly_cost(layout)
    return LayoutPrediction(
        layout, (), none, none, None, cost, currency, "memory", {}, (0.0,) * len(layout.pools), (), reasons
    )


class _Numbers:
    """Figures of a layout at the worst, the likely and the best constants, as estimates."""

    def __init__(self, points: list[Point], basis: Basis) -> None:
        self.points, self.basis = points, basis
        self._stretches = stretches(basis)

    def of(self, measure: Measure, figure: Callable[[Point], float]) -> Estimate:
        """One figure with its range."""
        values = [figure(p) for p in self.points]
        low, high = self._stretches[measure].applied(values[1], min(values), max(values))
        return Estimate(values[1], low, high, self.basis)


def _class_outcome(i: int, name: str, number: _Numbers) -> ClassOutcome:
    def latency(metric: str, body: Measure, tail: Measure) -> Latency:
        def at(q: int) -> Estimate:
            return number.of(tail if q > 1 else body, lambda p: float(getattr(p.classes[i], metric)[q]))

        return Latency(at(0), at(1), at(2))

    return ClassOutcome(
        name,
        number.of("flow", lambda p: p.classes[i].rate),
        latency("ttft", "first_token", "first_token_tail"),
        latency("itl", "token", "token_tail"),
        latency("e2e", "flow", "flow"),
    )


def _figure(prediction: LayoutPrediction, point: Point, metric: Metric) -> float:
    match metric:
        case "output_tok_per_s":
            return point.output_tok_per_s
        case "total_tok_per_s":
            return point.total_tok_per_s
        case "tokens_per_cost":
            return point.total_tok_per_s / (prediction.cost_per_hour or 1.0)
        case _:
            weight = sum(c.rate for c in point.classes)
            mean = sum(c.rate * float(getattr(c, metric)[0]) for c in point.classes) / weight
            return 1 / mean


def _bottleneck(case: Case, point: Point) -> Bottleneck:
    steady = point.steady
    if steady.saturated or steady.fill >= 1:
        pool = case.decode[0]
        asked = pool.pool.max_seqs
        by_memory = pool.fit.sequences <= pool.fit.max_num_seqs and (
            asked is None or asked >= pool.fit.sequences
        )
        return "kv-memory" if by_memory else "decode"
    if steady.kv_rho >= _FULL and steady.kv_rho > steady.rho:
        return "kv-transfer"
    if steady.rho >= _FULL:
        return "decode" if case.colocated else "prefill"
    if all(x >= c.rate * (1 - 1e-3) for x, c in zip(steady.rates, case.classes, strict=True)):
        return "rate"
    return "prefill" if steady.rho > 0.9 and not case.colocated else "concurrency"


def _utilisation(case: Case, point: Point) -> dict[str, float]:
    if case.colocated:
        return {"colocated": point.steady.fill}
    return {"prefill": point.steady.rho, "decode": point.steady.fill}


def _batches(layout: Layout, case: Case, point: Point) -> tuple[float, ...]:
    """Sequences running per replica; prompts in a prefill replica by Little's law."""
    steady = point.steady
    decode = dict(zip((id(s.pool) for s in case.decode), steady.batches, strict=True))
    engines = {id(s.pool): s.fit.ranks for s in case.prefill}
    return tuple(decode.get(id(p), engines.get(id(p), 0) * steady.rho) for p in layout.pools)


def _violations(service: ResolvedService, classes: tuple[ClassOutcome, ...]) -> tuple[Violation, ...]:
    found = []
    for load, outcome in zip(service.classes, classes, strict=True):
        for bound in load.bounds:
            seen = outcome.latency(bound.metric).at(bound.percentile)
            if seen.value > bound.limit_s:
                found.append(Violation(load.name, bound, seen.value, seen.low > bound.limit_s))
    return tuple(found)
