"""Why there is no layout: the requirements that exclude each other, each with a relaxation that was solved.

A deletion filter over requirements: one after the other is dropped, and stays dropped where the rest is still
infeasible; what remains is a conflict no part of which could be left out. Every number printed comes from a solve.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from disaggc import units
from disaggc.diagnostics import Diagnostic, Severity
from disaggc.ir.plan import Role
from disaggc.perf.models import Models
from disaggc.resolve.model import ResolvedSpec
from disaggc.resolve.pairing import pair_refusal
from disaggc.solve.attempt import Attempt, attempt, rates_of
from disaggc.solve.candidates import allowed_roles
from disaggc.solve.cpsat import Limits
from disaggc.solve.rates import LONGEST_S, Kind, ReplicaRates
from disaggc.solve.relax import LIGHT, Requirement, dropped, eased, enlarged, requirements
from disaggc.solve.solution import Infeasible, Unproven
from disaggc.solve.wording import said

_STEPS = 7
"""Halvings of the bracket around the limit that would hold."""
_MORE_NODES = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class _Solver:
    """Solves changed specs with the same limits."""

    limits: Limits

    def __call__(self, resolved: ResolvedSpec) -> Attempt:
        models = Models.of(resolved).value
        assert models is not None  # noqa: S101 - the same calibration was read before
        return attempt(rates_of(models), self.limits)

    def holds(self, resolved: ResolvedSpec) -> bool:
        return self(resolved).chosen is not None


def explain(models: Models, found: Attempt, limits: Limits) -> Infeasible | Unproven:
    """DGC501 for each requirement of a minimal conflict, or DGC502 where nothing is proved.

    A member that alone would not free the spec (it stands in a second conflict too) is told in the others' notes.
    """
    resolved = models.resolved
    if not found.proved:
        return Unproven((_not_proved(found),))
    solver = _Solver(limits)
    bare = resolved
    for requirement in requirements(resolved):
        bare = dropped(bare, requirement)
    if not solver.holds(bare):
        return Infeasible(tuple(_nothing_runs(found.rates, resolved)))
    kept, reduced = list(requirements(resolved)), resolved
    for requirement in requirements(resolved):
        without = dropped(reduced, requirement)
        if solver(without).proved:
            kept.remove(requirement)
            reduced = without
    larger = _larger(solver, resolved)
    findings = [_finding(solver, resolved, kept, one=one) for one in kept]
    own = [finding for finding in findings if finding.help is not None] or findings
    return Infeasible(
        tuple(replace(f, help=", or ".join(h for h in (f.help, larger) if h) or None) for f in own)
    )


def _finding(
    solver: _Solver, resolved: ResolvedSpec, kept: list[Requirement], *, one: Requirement
) -> Diagnostic:
    """The finding about one requirement of the conflict; help where easing it alone makes the whole spec hold."""
    message, relaxation = _eased(solver, resolved, one)
    others = [said(resolved, other) for other in kept if other is not one]
    notes = (f"it conflicts with {' and '.join(others)}",) if others else ()
    return Diagnostic("DGC501", Severity.ERROR, message, one.path, notes=notes, help=relaxation)


def _eased(solver: _Solver, resolved: ResolvedSpec, one: Requirement) -> tuple[str, str | None]:
    """(message, what to type); the second only where a solve of the changed spec succeeded."""
    text = said(resolved, one)
    match one.kind:
        case "bound":
            return _eased_bound(solver, resolved, one)
        case "load":
            factor = _threshold((1.0, LIGHT), lambda f: solver.holds(eased(resolved, one, f)))
            factor = None if factor is None else _round_load(solver, resolved, one, factor=factor)
            if factor is None:
                return f"{text} cannot be served on this cluster", None
            most = said(eased(resolved, one, factor), one)
            return (
                f"{text} cannot be served on this cluster: the most that holds is {most}",
                f"lower it to {most}",
            )
        case "max-nodes":
            limit = (
                next(s for s in resolved.services if s.name == one.service).given.constraints.max_nodes or 0
            )
            for more in _MORE_NODES:
                if solver.holds(eased(resolved, one, limit + more)):
                    text = f"{text} are too few: {limit + more} suffice"
                    return text, f"write `max_nodes: {limit + more}`"
            return f"{text} are too few", None
        case "floor" | "min-nodes" | "spare" | "replicas":
            possible = solver.holds(dropped(resolved, one))
            return f"{text} cannot be met on this cluster", f"remove `{one.path[-1]}`" if possible else None


def _eased_bound(solver: _Solver, resolved: ResolvedSpec, one: Requirement) -> tuple[str, str | None]:
    text = said(resolved, one)
    free = solver(dropped(resolved, one))
    if free.chosen is None or one.bound is None:
        return f"{text} cannot hold on this cluster", None
    index = next(i for i, rates in enumerate(free.rates) if rates.service.name == one.service)
    seen = next(o for o in free.chosen[index].prediction.classes if o.name == one.load)
    reached = seen.latency(one.bound.metric).at(one.bound.percentile).value
    top = max(reached * 1.02, one.bound.limit_s * 1.02)
    limit = _threshold((one.bound.limit_s, top), lambda value: solver.holds(eased(resolved, one, value)))
    if limit is None:
        return f"{text} cannot hold on this cluster", None
    allowed = _rounded_up(limit)
    if not solver.holds(eased(resolved, one, allowed)):
        allowed = limit
    least = units.format_duration(allowed)
    return f"{text} cannot hold: the least that holds on this cluster is {least}", f"allow {least}"


def _threshold(bracket: tuple[float, float], holds: Callable[[float], bool]) -> float | None:
    """The value nearest to the failing end that holds, to a few per cent; None when the other end fails too."""
    failing, holding = bracket
    if not holds(holding):
        return None
    for _ in range(_STEPS):
        middle = math.sqrt(failing * holding)
        if holds(middle):
            holding = middle
        else:
            failing = middle
    return holding


def _round_load(solver: _Solver, resolved: ResolvedSpec, one: Requirement, *, factor: float) -> float:
    """The factor that brings the rate to three significant digits, downwards, where that holds."""
    service = next(s for s in resolved.services if s.name == one.service)
    rate = next(c for c in service.classes if c.name == one.load).rate
    if rate is None:
        return factor
    step = 10.0 ** (math.floor(math.log10(rate * factor)) - 2)
    rounded = math.floor(rate * factor / step) * step / rate
    return rounded if solver.holds(eased(resolved, one, rounded)) else factor


def _rounded_up(seconds: float) -> float:
    """Two significant digits, upwards."""
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return math.ceil(seconds / step) * step


def _larger(solver: _Solver, resolved: ResolvedSpec) -> str | None:
    """The fewest nodes, in one group, that make everything hold."""
    for more in _MORE_NODES:
        for group in resolved.groups:
            if solver.holds(enlarged(resolved, group.name, more)):
                return f"add {more} node{'s' if more > 1 else ''} to `cluster.nodes.{group.name}`"
    return None


def _nothing_runs(rates: tuple[ReplicaRates, ...], resolved: ResolvedSpec) -> list[Diagnostic]:
    """Not even one request at a time: memory, pairing or the size of the cluster."""
    found: list[Diagnostic] = []
    for one in rates:
        path = ("services", one.service.name, "constraints")
        roles = allowed_roles(one.service)
        for role in roles:
            if any(kind[0] is role for kind in one.kinds):
                continue
            endless = [(seconds, kind) for kind, seconds in one.endless.items() if kind[0] is role]
            if endless:
                found.append(_endless(resolved, one.service.name, min(endless, key=lambda e: e[0])))
            else:
                why = [reason for (r, _), reasons in one.refused.items() if r is role for reason in reasons]
                message = f"no {role.value} replica of `{one.service.name}` fits on any node group"
                found.append(
                    Diagnostic("DGC501", Severity.ERROR, message, path, notes=tuple(dict.fromkeys(why)))
                )
        refusals = dict.fromkeys(_unpaired(one))
        if not found and refusals and Role.COLOCATED not in roles:
            message = f"no prefill and decode shape of `{one.service.name}` may exchange KV"
            found.append(Diagnostic("DGC501", Severity.ERROR, message, path, notes=tuple(refusals)))
    if not found:
        nodes = sum(len(group.nodes) for group in resolved.groups)
        names = " and ".join(f"`{one.service.name}`" for one in rates)
        message = f"the smallest layout of {names} does not fit on {nodes} node{'s' if nodes > 1 else ''}"
        found.append(Diagnostic("DGC501", Severity.ERROR, message, ("cluster", "nodes")))
    return found


def _endless(resolved: ResolvedSpec, service: str, best: tuple[float, Kind]) -> Diagnostic:
    """Not the cluster is too small: the constants say that no request ever ends."""
    seconds, (role, group, shape) = best
    file = resolved.spec.calibration is not None
    constants = " by the constants of the calibration file" if file else ""
    message = (
        f"no {role.value} replica of `{service}` answers a request within ten years: the fastest, {shape} on "
        f"`{group}`, takes {seconds / (LONGEST_S / 10):.2g} years{constants}"
    )
    path = ("calibration",) if file else ("services", service, "workload")
    way = (
        "leave out the constants that nobody measured, or put them in their units (seconds, shares of a peak)"
    )
    return Diagnostic(
        "DGC501", Severity.ERROR, message, path, help=way if file else "ask for shorter requests"
    )


def _unpaired(rates: ReplicaRates) -> list[str]:
    """Why no prefill kind goes with any decode kind; empty when one does."""
    refusals: list[str] = []
    for prefill in rates.kinds:
        for decode in rates.kinds:
            if prefill[0] is not Role.PREFILL or decode[0] is not Role.DECODE:
                continue
            sides = [rates.group(kind).accelerator.vendor for kind in (prefill, decode)]
            if sides[0] != sides[1]:
                refusals.append(f"KV cannot move from {sides[0]} to {sides[1]} accelerators")
                continue
            refusal = pair_refusal(rates.service, prefill[2], decode[2])
            if refusal is None:
                return []
            refusals.append(refusal)
    return refusals


def _not_proved(found: Attempt) -> Diagnostic:
    state = "no layout was found that keeps every objective when predicted"
    if found.answered.status == "unknown":
        state = "the solver reached its limit before it found a layout or proved that there is none"
    return Diagnostic(
        "DGC502", Severity.ERROR, state, ("cluster",), help="relax an objective, or give the solver more time"
    )
