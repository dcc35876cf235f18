"""What one replica carries, for the solver's linear model: requests/s at an operating point under the objectives.

A replica is looked at as one of a pool of equal ones; whether a whole layout holds is `predict`'s business.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from disaggc import units
from disaggc.ir.plan import Role, Shape
from disaggc.perf import queueing
from disaggc.perf.case import Case
from disaggc.perf.demand import ClassDemand, demand_of, nominal_weights
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.estimate import Estimate
from disaggc.perf.latency import ClassPoint
from disaggc.perf.layout import PoolLayout
from disaggc.perf.memory import Fit, NoFit
from disaggc.perf.models import Models
from disaggc.perf.prefill import PromptTimes
from disaggc.perf.stations import Sized
from disaggc.perf.steady import falling_root
from disaggc.perf.transfer import Endpoint, kv_path
from disaggc.resolve.model import Bound, ClassLoad, NodeGroupFacts, ResolvedService

_NOTHING = Estimate(0.0, 0.0, 0.0)
_GRID = 6
"""Points of the batch grid between one sequence and the memory's limit, besides those the concurrency asks for."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """One replica at one operating point.

    rate: requests/s of the service's class mix (zero where it cannot run). batch: sequences running (prefill: None).
    step_s: mean decode step, for prefill the mean prompt time. itl_s, ttft_s: medians where the role decides them.
    feasible: every objective this role can break holds at the likely value. reasons: what does not.
    """

    rate: Estimate
    batch: float | None
    step_s: Estimate
    fit: Fit | None
    feasible: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica the solver may place. pool: how many of them share the queue."""

    role: Role
    group: NodeGroupFacts
    shape: Shape
    pool: int = 1


def capacity(
    models: Models, service: ResolvedService, candidate: Candidate, *, batch: float | None = None
) -> Capacity:
    """Requests/s of one replica with the objectives kept.

    Prefill: the largest rate at which the TTFT bounds hold. Decode and colocated: what `batch` running sequences yield;
    infeasible where an ITL, TTFT or E2E bound breaks or batch exceeds memory. batch None = the memory's limit.
    """
    fit = models.memory(service, candidate.group, candidate.role, shape=candidate.shape)
    if isinstance(fit, NoFit):
        return Capacity(_NOTHING, batch, _NOTHING, None, feasible=False, reasons=(str(fit),))
    classes = demand_of(service)
    if candidate.role is Role.PREFILL:
        return _prefill(_Replica(models, service, candidate, fit, classes))
    limit = float(fit.replica_sequences)
    point = limit if batch is None else batch
    if point > limit:
        reason = f"{point:.0f} sequences exceed {limit:.0f} that memory and `max-num-seqs` allow"
        return Capacity(_NOTHING, point, _NOTHING, fit, feasible=False, reasons=(reason,))
    here = _Replica(models, service, candidate, fit, classes)
    return _colocated(here, point) if candidate.role is Role.COLOCATED else _decode(here, point)


def operating_points(
    models: Models, service: ResolvedService, candidate: Candidate, *, replicas: int
) -> tuple[float, ...]:
    """Batches worth looking at: the closed loop's cap over 1..replicas, a geometric grid, and the memory's limit."""
    fit = models.memory(service, candidate.group, candidate.role, shape=candidate.shape)
    if isinstance(fit, NoFit) or candidate.role is Role.PREFILL:
        return ()
    limit = float(fit.replica_sequences)
    cap = sum(load.concurrency or math.inf for load in service.classes)
    points = {limit}
    if cap < math.inf:
        points |= {float(cap / k) for k in range(1, replicas + 1)}
    points |= {limit ** (i / _GRID) for i in range(_GRID)}
    return tuple(sorted(round(p, 3) for p in points if 1 <= p <= limit))


@dataclass(frozen=True, slots=True)
class _Replica:
    models: Models
    service: ResolvedService
    candidate: Candidate
    fit: Fit
    classes: tuple[ClassDemand, ...]

    @property
    def times(self) -> tuple[StepTimes, StepTimes, StepTimes]:
        engine = self.models.engine(self.service, self.candidate.group, self.candidate.shape)
        return engine.worst, engine.likely, engine.best

    def estimate(self, worst: float, likely: float, best: float) -> Estimate:
        constants = self.models.constants(self.service, self.candidate.group, self.candidate.shape)
        return Estimate(likely, min(worst, likely, best), max(worst, likely, best), constants.basis)


def _bounds(service: ResolvedService, metric: str) -> list[tuple[int, ClassLoad, Bound]]:
    return [(i, load, b) for i, load in enumerate(service.classes) for b in load.bounds if b.metric == metric]


def _length(load: ClassLoad, bound: Bound, *, prompt: bool) -> float:
    lengths = load.isl if prompt else load.osl
    return {50: lengths.p50, 90: lengths.p90, 99: lengths.p99}[bound.percentile]


def _prefill(here: _Replica) -> Capacity:
    found = [_prefill_rate(here, times) for times in here.times]
    reasons = found[1][2]
    rate = here.estimate(*(f[0] for f in found))
    return Capacity(
        rate, None, here.estimate(*(f[1] for f in found)), here.fit, feasible=not reasons, reasons=reasons
    )


def _prefill_rate(here: _Replica, times: StepTimes) -> tuple[float, float, tuple[str, ...]]:
    """(requests/s, mean prompt time, reasons) of one replica in a pool of `pool` at one set of constants."""
    prompt = PromptTimes(times, here.fit.max_num_batched_tokens)
    weights = nominal_weights(here.classes)
    service_s = sum(w * prompt.busy_s(c) for w, c in zip(weights, here.classes, strict=True))
    engines = float(here.fit.ranks * here.candidate.pool)
    end = Endpoint(here.candidate.group, here.candidate.shape)
    path = kv_path(here.service, here.models.resolved.fabric, end, decode=end, same_node=False)
    top, reasons = queueing.SATURATED, []
    for i, load, bound in _bounds(here.service, "ttft"):
        c, isl = here.classes[i], _length(load, bound, prompt=True)
        tokens = c.computed(isl)
        computing, moving = prompt.fetched_s(tokens, c.squares(isl), path, values=times.values)
        alone = 2 * times.values.hop_s + computing + moving
        left = bound.limit_s - alone
        if left < 0:
            reasons.append(_too_long(load, bound, alone))
            top = 0.0
            continue
        queue = _Queue(service_s, engines, c.variability, bound.percentile)
        top = min(top, falling_root(partial(queue.slack, left), 0.0, queueing.SATURATED))
    return top * here.fit.ranks / service_s, service_s, tuple(reasons)


@dataclass(frozen=True, slots=True)
class _Queue:
    service_s: float
    engines: float
    variability: float
    percentile: int

    def slack(self, left_s: float, rho: float) -> float:
        """What the percentile of the wait at load rho leaves of left_s."""
        mean = queueing.wait_mean(self.service_s, self.engines, rho, variability=self.variability)
        probability = queueing.wait_probability(self.engines, rho)
        return left_s - queueing.wait_percentile(mean, probability, self.percentile)


def _decode(here: _Replica, batch: float) -> Capacity:
    weights = nominal_weights(here.classes)
    tokens = [w * c.osl.mean * c.steps_per_token for w, c in zip(weights, here.classes, strict=True)]
    context = sum(t * c.context for t, c in zip(tokens, here.classes, strict=True)) / sum(tokens)
    steps = [times.decode(batch, context) for times in here.times]
    rate = here.estimate(*(batch / (step * sum(tokens)) for step in steps))
    reasons = _broken_by_step(here, steps[1])
    return Capacity(rate, batch, here.estimate(*steps), here.fit, feasible=not reasons, reasons=reasons)


def _broken_by_step(here: _Replica, step_s: float) -> tuple[str, ...]:
    """ITL and E2E bounds that no prefill, however fast, can save at this decode step."""
    reasons = []
    for i, load, bound in _bounds(here.service, "itl") + _bounds(here.service, "e2e"):
        per_token = step_s * here.classes[i].steps_per_token
        tokens = 1.0 if bound.metric == "itl" else _length(load, bound, prompt=False)
        if per_token * tokens > bound.limit_s:
            reasons.append(_too_long(load, bound, per_token * tokens))
    return tuple(reasons)


def _colocated(here: _Replica, batch: float) -> Capacity:
    """One replica in a closed loop of `batch` requests: rates and latencies settle against each other."""
    weights = nominal_weights(here.classes)
    lives = [w * c.osl.mean for w, c in zip(weights, here.classes, strict=True)]
    classes = tuple(
        replace(c, rate=math.inf, cap=batch * life / sum(lives))
        for c, life in zip(here.classes, lives, strict=True)
    )
    pool = PoolLayout(Role.COLOCATED, here.candidate.group, here.candidate.shape, 1)
    case = Case(here.models, here.service, (Sized(pool, here.fit),), classes=classes)
    points = [case.at_corner(i) for i in range(3)]
    rate = here.estimate(*(sum(p.steady.rates) for p in points))
    reasons = _broken(here.service, points[1].classes)
    step = here.estimate(*(p.steady.step_s for p in points))
    return Capacity(rate, batch, step, here.fit, feasible=not reasons, reasons=reasons)


def _broken(service: ResolvedService, seen: tuple[ClassPoint, ...]) -> tuple[str, ...]:
    reasons = []
    for load, point in zip(service.classes, seen, strict=True):
        for bound in load.bounds:
            value = {"ttft": point.ttft, "itl": point.itl, "e2e": point.e2e}[bound.metric]
            got = dict(zip((50, 90, 99), value, strict=True))[bound.percentile]
            if got > bound.limit_s:
                reasons.append(_too_long(load, bound, got))
    return tuple(reasons)


def _too_long(load: ClassLoad, bound: Bound, value_s: float) -> str:
    allowed = units.format_duration(bound.limit_s)
    found = units.format_duration(value_s)
    return f"`{bound.metric}_p{bound.percentile}` of `{load.name}` is {found}, {allowed} allowed"
