"""Predicts sketches and puts them in order: what holds first, then the stated goal, then the smaller layout.

The fixed point decides here, not the linear model. Knows no solver and no place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from disaggc.ir.plan import Role, Yardstick
from disaggc.perf.layout import Layout, LayoutPrediction, Violation
from disaggc.perf.predict import predict, ratio
from disaggc.resolve.model import ResolvedService
from disaggc.solve.problem import Goal
from disaggc.solve.rates import ReplicaRates
from disaggc.solve.sketch import Sketch, kind_order, layouts_of, mode_of, nodes_of
from disaggc.solve.solution import Margin

_STEP = 5e-4
"""Relative difference below which two predicted figures count as equal."""
_MET = 1 - 1e-3
"""Share of an offered rate that counts as all of it."""
_NEVER = 1e12
"""Seconds: the latency of a layout that serves nothing."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A predicted sketch. broken: objectives that fail in some scenario or with the spares gone; short: demands unmet.

    allowed: whether the spec's constraints let it be chosen.
    """

    sketch: Sketch
    layout: Layout
    prediction: LayoutPrediction
    broken: tuple[Violation, ...]
    short: tuple[str, ...]
    allowed: bool
    order: tuple[object, ...]

    @property
    def holds(self) -> bool:
        """Everything that was asked for is kept."""
        return not self.broken and not self.short and not self.prediction.reasons


def weigh(rates: ReplicaRates, sketch: Sketch, goal: Goal) -> Weighed:
    """The sketch predicted under every scenario and with its spares gone.

    Replicas are held to the sequences their bounds allow only where everything then holds; otherwise the layout is
    shown as it would run, with the objective that breaks.
    """
    seen = [_weighed(rates, sketch, goal=goal, layout=layout) for layout in layouts_of(rates, sketch)]
    return min(seen, key=merit)


def _weighed(rates: ReplicaRates, sketch: Sketch, *, goal: Goal, layout: Layout) -> Weighed:
    prediction = predict(rates.models, rates.service, layout)
    broken = list(prediction.violations)
    short = [] if prediction.reasons else list(_short(rates.service, prediction, goal))
    spare = rates.service.given.constraints.spare_replicas
    reduced = _without(layout, spare)
    for position, variant in enumerate(rates.variants):
        for one in dict.fromkeys((layout, reduced)):
            if (position == 0 and one is layout) or one is None:
                continue
            other = predict(rates.models, variant, one)
            broken.extend(other.violations)
            short.extend(other.reasons or _short(variant, other, goal))
    if reduced is None:
        short.append("spare")
    return Weighed(
        sketch,
        layout,
        prediction,
        tuple(dict.fromkeys(broken)),
        tuple(dict.fromkeys(short)),
        allowed(rates, sketch),
        _order(rates, sketch, (prediction, goal)),
    )


def best_first(weighed: list[Weighed]) -> list[Weighed]:
    """Those that may be chosen and hold, best first; then those that hold; then the rest."""
    return sorted(weighed, key=lambda w: (not (w.holds and w.allowed), *merit(w)))


def merit(weighed: Weighed) -> tuple[object, ...]:
    """Order among all layouts: what holds by the goal; what does not by how much it still serves."""
    served = 0 if weighed.holds else -_bucket(weighed.prediction.total_tok_per_s.value)
    return (not weighed.holds, bool(weighed.prediction.reasons), served, weighed.order)


def allowed(rates: ReplicaRates, sketch: Sketch) -> bool:
    """Whether mode, exact counts, spares and node limits of the spec let this sketch be chosen."""
    service = rates.service
    constraints = service.given.constraints
    mode = mode_of(rates, sketch)
    if service.mode not in ("auto", mode):
        return False
    counts = {role: sum(n for kind, n in sketch if kind[0] is role) for role in Role}
    roles = (Role.COLOCATED,) if mode == "colocated" else (Role.PREFILL, Role.DECODE)
    exact = {
        Role.PREFILL: service.prefill.replicas,
        Role.DECODE: service.decode.replicas,
        Role.COLOCATED: service.colocated.replicas,
    }
    if any(counts[role] != (exact[role] if exact[role] is not None else counts[role]) for role in roles):
        return False
    if any(counts[role] < 1 + constraints.spare_replicas for role in roles):
        return False
    nodes = nodes_of(rates, sketch)
    least, most = service.given.guarantees.nodes or 0, constraints.max_nodes
    return nodes >= least and (most is None or nodes <= most)


def compare(goal: Goal, one: LayoutPrediction, other: LayoutPrediction) -> Margin:
    """How much better one is than other in the stated goal; errors they share cancel.

    Where the goal's figure is equal, as for all that serve the whole offered rate, latency picks and is compared.
    """
    metric = goal_metric(goal, one, other)
    found = ratio(one, other, metric)
    if metric != "e2e" and one is not other and abs(found.value - 1) < _STEP:
        metric = "e2e"
        found = ratio(one, other, metric)
    return Margin(metric, found)


def goal_metric(goal: Goal, *predictions: LayoutPrediction) -> Yardstick:
    """The figure that a goal is about."""
    if goal == "latency":
        return "e2e"
    if goal == "cost" and all(p.tokens_per_cost is not None for p in predictions):
        return "tokens_per_cost"
    return "total_tok_per_s"


def _short(service: ResolvedService, seen: LayoutPrediction, goal: Goal) -> tuple[str, ...]:
    """Demands that are not objectives: the offered open-loop rate, the whole concurrency, the guaranteed rate."""
    found: list[str] = []
    for load, outcome in zip(service.classes, seen.classes, strict=True):
        bounded = any(b.metric in ("ttft", "e2e") for b in load.bounds)
        demanded = load.rate is not None and load.concurrency is None and (bounded or goal != "throughput")
        if demanded and outcome.rate.value < (load.rate or 0.0) * _MET:
            found.append("rate")
    capped = any(load.concurrency is not None for load in service.classes)
    if goal != "throughput" and capped and seen.bottleneck not in ("concurrency", "rate"):
        found.append("hold")
    floor = service.given.guarantees.rate
    if floor is not None and sum(o.rate.value for o in seen.classes) < floor * _MET:
        found.append("floor")
    return tuple(found)


def _without(layout: Layout, spare: int) -> Layout | None:
    """The layout after `spare` replicas of each role failed, the strongest pools first; None when a role is gone."""
    if not spare:
        return layout
    pools = list(layout.pools)
    for role in {pool.role for pool in pools}:
        lost = spare
        ordered = sorted(
            (i for i, p in enumerate(pools) if p.role is role), key=lambda i: -pools[i].shape.accelerators
        )
        for i in ordered:
            taken = min(lost, pools[i].replicas)
            pools[i] = replace(pools[i], replicas=pools[i].replicas - taken)
            lost -= taken
        if lost or not any(p.replicas for p in pools if p.role is role):
            return None
    return replace(layout, pools=tuple(p for p in pools if p.replicas))


def _order(rates: ReplicaRates, sketch: Sketch, seen: tuple[LayoutPrediction, Goal]) -> tuple[object, ...]:
    prediction, goal = seen
    tokens = -_bucket(prediction.total_tok_per_s.value)
    wait = _bucket(_e2e(prediction))
    nodes = nodes_of(rates, sketch)
    size = sum(kind[2].accelerators * n for kind, n in sketch)
    last = (nodes, size, *((kind_order(kind), n) for kind, n in sketch))
    match goal:
        case "throughput":
            return (tokens, wait, *last)
        case "latency":
            return (wait, tokens, *last)
        case "cost":
            price = prediction.cost_per_hour
            return (price if price is not None else float(size), tokens, wait, *last)
        case "nodes":
            return (nodes, tokens, wait, *last)


def _bucket(value: float) -> int:
    return round(math.log(value) / _STEP) if value > 0 else -(10**9)


def _e2e(prediction: LayoutPrediction) -> float:
    """Request-weighted mean of the classes' median end-to-end latency."""
    weight = sum(o.rate.value for o in prediction.classes)
    if weight <= 0:
        return _NEVER
    return sum(o.rate.value * o.e2e.p50.value for o in prediction.classes) / weight
