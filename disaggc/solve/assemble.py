"""From chosen layouts to the solution: places, alternatives with their ratios, the margin to the other mode."""

from __future__ import annotations

from collections.abc import Iterable

from disaggc.ir.plan import Role
from disaggc.perf.layout import Layout
from disaggc.perf.thresholds import doubling_rate
from disaggc.solve.choose import Choice
from disaggc.solve.packing import Wanted
from disaggc.solve.placement import Located, place
from disaggc.solve.problem import Goal
from disaggc.solve.rank import Weighed, compare, merit
from disaggc.solve.rates import ReplicaRates
from disaggc.solve.sketch import Sketch, mode_of
from disaggc.solve.solution import Placed, PoolBatch, RankedLayout, ServiceSolution

MOST_ALTERNATIVES = 12


def located(
    rates: tuple[ReplicaRates, ...], chosen: tuple[Sketch, ...], kept: Iterable[Located] = ()
) -> tuple[Located, ...] | None:
    """Every replica of every service on its node; None when the counts do not fit together."""
    wanted = [w for one, sketch in zip(rates, chosen, strict=True) for w in _wanted(one, sketch)]
    return place(wanted, rates[0].models.resolved.groups, kept)


def assemble(
    rates: ReplicaRates, choice: Choice, best: Weighed, *, goal: Goal, replicas: tuple[Placed, ...]
) -> ServiceSolution:
    """One service's part of the solution."""
    models, service = rates.models, rates.service
    flexible = best.layout.mode == "flexible"
    colocated = _first(choice, colocated=True)
    other = _first(choice, colocated=best.layout.mode != "colocated")
    doubling = doubling_rate(models, service, best.layout)
    split = (best.layout.replicas(Role.PREFILL), best.layout.replicas(Role.DECODE))
    return ServiceSolution(
        name=service.name,
        mode=best.layout.mode,
        replicas=replicas,
        batches=_batches(best, flexible=flexible),
        layout=best.layout,
        prediction=best.prediction,
        colocated=None if colocated is None else colocated.prediction,
        alternatives=tuple(_ranked(w, best, goal) for w in _shown(choice, best)),
        margin=None if other is None else compare(goal, best.prediction, other.prediction),
        flexible_ratio=split if flexible else None,
        prefill_doubling_rate=None if doubling is None else doubling.value,
    )


def _wanted(rates: ReplicaRates, sketch: Sketch) -> list[Wanted]:
    given = rates.service.given
    alone = given.constraints.max_nodes is not None or given.guarantees.nodes is not None
    counts: dict[tuple[Role, str], Wanted] = {}
    flexible = mode_of(rates, sketch) == "flexible"
    for (role, group, shape), count in sketch:
        as_role = Role.FLEXIBLE if flexible else role
        before = counts.get((as_role, f"{group} {shape}"))
        counts[as_role, f"{group} {shape}"] = Wanted(
            service=rates.service.name,
            role=as_role,
            group=group,
            shape=shape,
            count=count + (before.count if before is not None else 0),
            alone=alone,
            spread=given.constraints.spare_replicas > 0,
        )
    return list(counts.values())


def _batches(best: Weighed, *, flexible: bool) -> tuple[PoolBatch, ...]:
    pools = zip(best.layout.pools, best.prediction.batches, strict=True)
    if flexible:
        return tuple(
            PoolBatch(Role.FLEXIBLE, pool.group.name, pool.shape, batch, pool.max_seqs)
            for pool, batch in pools
            if pool.role is Role.DECODE
        )
    return tuple(
        PoolBatch(pool.role, pool.group.name, pool.shape, batch, pool.max_seqs) for pool, batch in pools
    )


def _first(choice: Choice, *, colocated: bool) -> Weighed | None:
    """The best layout of a mode, whether the spec allows it or not."""
    of_mode = [
        w for w in choice.ranked if (w.layout.mode == "colocated") == colocated and not w.prediction.reasons
    ]
    return min(of_mode, key=merit, default=None)


def _shown(choice: Choice, best: Weighed) -> list[Weighed]:
    """One layout per split of the nodes, the chosen one first, the best colocated one in any case."""
    ordered = sorted((w for w in choice.ranked if not w.prediction.reasons), key=merit)
    shown: dict[object, Weighed] = {_split(best.layout): best}
    for weighed in ordered:
        shown.setdefault(_split(weighed.layout), weighed)
    kept = list(shown.values())[:MOST_ALTERNATIVES]
    baseline = _first(choice, colocated=True)
    if baseline is not None and not any(w.layout.mode == "colocated" for w in kept):
        kept[-1] = baseline
    return kept


def _split(layout: Layout) -> object:
    """Nodes per role and group; replicas where they share a node."""
    taken: dict[tuple[str, str], float] = {}
    for pool in layout.pools:
        key = (pool.role.value, pool.group.name)
        taken[key] = taken.get(key, 0.0) + pool.replicas * pool.shape.accelerators / pool.group.per_node
    return layout.mode, tuple(sorted(taken.items()))


def _ranked(weighed: Weighed, best: Weighed, goal: Goal) -> RankedLayout:
    relative = compare(goal, weighed.prediction, best.prediction)
    return RankedLayout(weighed.layout, weighed.prediction, relative, weighed.holds)
