"""Keeps what disaggc.lock records: mode, counts, shapes and places, as long as they are feasible.

A lock that still holds is kept even where another layout would be better; what leaving it would gain is said, not done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from disaggc.diagnostics import Diagnostic, Severity
from disaggc.ir.plan import Role, Yardstick
from disaggc.perf.memory import NoFit
from disaggc.resolve.model import RoleChoices
from disaggc.solve.assemble import located
from disaggc.solve.attempt import Attempt
from disaggc.solve.choose import Choice, choose
from disaggc.solve.placement import Located
from disaggc.solve.problem import Goal
from disaggc.solve.rank import Weighed, best_first, compare, weigh
from disaggc.solve.rates import Kind, ReplicaRates
from disaggc.solve.shapes import choices_of
from disaggc.solve.sketch import Sketch, canonical, footprint, nodes_of
from disaggc.solve.solution import Placed, SlotAt
from disaggc.spec.lock import Lock, LockedPool, LockedService

_WORTH = 1.005
"""Gains below half a per cent are not worth a sentence."""
_NAMES: dict[Yardstick, str] = {
    "total_tok_per_s": "tokens/s",
    "tokens_per_cost": "tokens per cost",
    "e2e": "lower median end-to-end latency",
}


def keep(rates: tuple[ReplicaRates, ...], lock: Lock, fresh: Attempt) -> Attempt:
    """The attempt with every locked layout that still holds; `fresh` with a finding where none can be kept."""
    goal: Goal = rates[0].models.resolved.spec.optimize
    held: dict[int, Weighed] = {}
    findings: list[Diagnostic] = []
    for i, one in enumerate(rates):
        recorded = lock.services.get(one.service.name)
        if recorded is None:
            continue
        found = _held(one, recorded, goal)
        if isinstance(found, Weighed):
            held[i] = found
        else:
            findings.append(_left(one.service.name, found))
    if not held:
        return replace(fresh, diagnostics=(*fresh.diagnostics, *findings))
    choices = _beside(rates, goal, held)
    chosen = tuple(choice.best for choice in choices if choice.best is not None)
    places = _places(rates, lock, chosen) if len(chosen) == len(rates) else None
    if places is None:
        names = "` and `".join(rates[i].service.name for i in held)
        rest = "its replicas find no places" if len(rates) == 1 else "the services find no room for it all"
        findings.append(_left(names, rest))
        return replace(fresh, diagnostics=(*fresh.diagnostics, *findings))
    findings.extend(_gains(rates, held, fresh))
    return Attempt(
        rates,
        fresh.answered,
        tuple(_with_fresh(choice, fresh, i) for i, choice in enumerate(choices)),
        chosen,
        located=places,
        locked=True,
        diagnostics=(*fresh.diagnostics, *findings),
    )


def _held(rates: ReplicaRates, recorded: LockedService, goal: Goal) -> Weighed | str:
    """The locked layout predicted anew, or why it cannot stay."""
    counts: dict[Kind, int] = {}
    for pool in recorded.pools:
        reason = _misfit(rates, pool)
        if reason is not None:
            return reason
        kind = (Role(pool.role), pool.group, pool.shape)
        counts[kind] = counts.get(kind, 0) + pool.replicas
    crowded = _crowded(rates, canonical(counts))
    if crowded is not None:
        return crowded
    weighed = best_first([weigh(rates, sketch, goal) for sketch in _splits(counts)])
    best = weighed[0]
    if best.holds and best.allowed:
        return best
    if best.broken:
        broken = best.broken[0]
        return f"`{broken.bound.metric}_p{broken.bound.percentile}` of `{broken.name}` would no longer hold"
    if not best.allowed:
        return "`constraints` no longer allow it"
    return f"it would no longer carry the load ({', '.join(best.short or best.prediction.reasons)})"


def _misfit(rates: ReplicaRates, pool: LockedPool) -> str | None:
    """Why a locked pool cannot run on this cluster at all."""
    group = next((g for g in rates.models.resolved.groups if g.name == pool.group), None)
    if group is None:
        return f"node group `{pool.group}` is gone"
    if group.accelerator.id != pool.accelerator:
        return f"`{pool.group}` now has {group.accelerator.id}, not {pool.accelerator}"
    role = Role.DECODE if pool.role == "flexible" else Role(pool.role)
    if not _still_allowed(choices_of(rates.service, role), pool):
        return "`constraints` no longer allow it"
    memory = rates.models.memory(rates.service, group, role, shape=pool.shape)
    if isinstance(memory, NoFit):
        return str(memory)
    room = rates.most((role, pool.group, pool.shape))
    if pool.replicas > room:
        return f"`{pool.group}` has room for {room} replicas of {pool.shape}, not {pool.replicas}"
    return None


def _still_allowed(choices: RoleChoices, pool: LockedPool) -> bool:
    """Whether the role's limits, which may have changed since, still name the pool's nodes and shape."""
    degrees = ((choices.tp, pool.shape.tp), (choices.pp, pool.shape.pp), (choices.dp, pool.shape.dp))
    if choices.groups and pool.group not in choices.groups:
        return False
    if any(given is not None and own not in given for given, own in degrees) or (
        pool.shape.dcp not in choices.dcp
    ):
        return False
    return choices.expert_parallel is not False or pool.shape.ep == 1


def _crowded(rates: ReplicaRates, sketch: Sketch) -> str | None:
    """Why pools that fit one by one do not fit together."""
    groups = {group.name: group for group in rates.models.resolved.groups}
    for name, taken in footprint(rates, sketch).items():
        there = len(groups[name].nodes) * groups[name].per_node
        if taken > there:
            return f"it takes {taken} accelerators of `{name}`, which has {there}"
    return None


def _splits(counts: Mapping[Kind, int]) -> Iterator[Sketch]:
    """The locked counts; a flexible pool in every split, because routing alone decides it."""
    for (role, group, shape), count in counts.items():
        if role is Role.FLEXIBLE:
            for prefill in range(1, count):
                halves = {(Role.PREFILL, group, shape): prefill, (Role.DECODE, group, shape): count - prefill}
                yield canonical(halves)
            return
    yield canonical(counts)


def _beside(rates: tuple[ReplicaRates, ...], goal: Goal, held: Mapping[int, Weighed]) -> tuple[Choice, ...]:
    """Choices for every service, the held ones fixed."""
    fixed = {i: Choice((weighed,), weighed.sketch) for i, weighed in held.items()}
    return choose(rates, goal, (None,) * len(rates), fixed=fixed)


def _places(
    rates: tuple[ReplicaRates, ...], lock: Lock, chosen: tuple[Weighed, ...]
) -> tuple[Located, ...] | None:
    return located(rates, tuple(best.sketch for best in chosen), tuple(_recorded(lock)))


def _recorded(lock: Lock) -> Iterator[Located]:
    for name in sorted(lock.services):
        for pool in lock.services[name].pools:
            for replica in pool.placement:
                slots = tuple(SlotAt(slot.node, rank, slot.devices) for rank, slot in enumerate(replica))
                yield name, Placed(Role(pool.role), pool.group, pool.shape, slots)


def _with_fresh(choice: Choice, fresh: Attempt, position: int) -> Choice:
    """The kept layout first, then what a fresh solve looked at."""
    others = fresh.choices[position].ranked if position < len(fresh.choices) else ()
    first = choice.ranked[:1]
    return replace(choice, ranked=(*first, *(w for w in others if w.sketch != first[0].sketch)))


def _gains(
    rates: tuple[ReplicaRates, ...], held: Mapping[int, Weighed], fresh: Attempt
) -> Iterator[Diagnostic]:
    """DGC702 for each service that another layout would serve better."""
    goal: Goal = rates[0].models.resolved.spec.optimize
    if fresh.chosen is None:
        return
    for i, weighed in held.items():
        better = fresh.chosen[i]
        if better.sketch == weighed.sketch:
            continue
        name = rates[i].service.name
        kept, other = _spelled(weighed), _spelled(better)
        gain = compare(goal, better.prediction, weighed.prediction)
        nodes = nodes_of(rates[i], weighed.sketch) - nodes_of(rates[i], better.sketch)
        if goal == "nodes" and nodes > 0:
            text = f"{nodes} node{'s' if nodes > 1 else ''} fewer"
        elif gain.ratio.value >= _WORTH:
            found = gain.ratio
            text = f"{found.value:.3f}x {_NAMES[gain.metric]} ({found.low:.3f} to {found.high:.3f})"
        else:
            continue
        yield Diagnostic(
            "DGC702",
            Severity.NOTE,
            f"`{name}` keeps {kept} from disaggc.lock, {other} would give {text}",
            ("services", name),
            help="`disaggc plan --upgrade` shows it, `disaggc build --upgrade` moves",
        )


def _spelled(weighed: Weighed) -> str:
    """`1P4D (tp8, tp8)`."""
    layout = weighed.layout
    shapes = ", ".join(str(pool.shape) for pool in layout.pools)
    if layout.mode == "colocated":
        return f"{sum(pool.replicas for pool in layout.pools)} colocated ({shapes})"
    return f"{layout.replicas(Role.PREFILL)}P{layout.replicas(Role.DECODE)}D ({shapes})"


def _left(name: str, reason: str) -> Diagnostic:
    return Diagnostic(
        "DGC703",
        Severity.WARNING,
        f"the layout of `{name}` in disaggc.lock cannot be kept: {reason}; it was solved anew",
        ("services", name),
    )
