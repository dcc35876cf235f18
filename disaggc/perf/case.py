"""One layout under one traffic, ready to be evaluated at any set of constants. Knows no ranges.

Joins the pools' step times, memory limits and KV paths into the two stations of the steady state and reads latency
percentiles off the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from disaggc.ir.plan import Role
from disaggc.perf import queueing
from disaggc.perf.constants import Values
from disaggc.perf.demand import ClassDemand, nominal_weights
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.layout import PoolLayout
from disaggc.perf.memory import Fit
from disaggc.perf.models import Models
from disaggc.perf.prefill import PromptTimes
from disaggc.perf.steady import Balance, DecodeStation, PrefillStation, Steady
from disaggc.perf.transfer import Endpoint, KvPath, kv_path
from disaggc.resolve.model import ResolvedService

_MIX_ROUNDS = 3
_SCORES = {50: 0.0, 90: 1.2815515594457831, 99: 2.3263478740408408}
Quantiles = tuple[float, float, float]
"""p50, p90, p99."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A pool with the memory it was found to have."""

    pool: PoolLayout
    fit: Fit

    @property
    def limit(self) -> float:
        """Sequences one replica runs at most."""
        asked = (
            self.fit.max_num_seqs
            if self.pool.max_seqs is None
            else min(self.pool.max_seqs, self.fit.max_num_seqs)
        )
        return float(asked * self.fit.ranks)


@dataclass(frozen=True, slots=True)
class ClassPoint:
    """What one class sees at one set of constants; seconds, p50/p90/p99."""

    rate: float
    ttft: Quantiles
    itl: Quantiles
    e2e: Quantiles


@dataclass(frozen=True, slots=True)
class Point:
    """The layout at one set of constants."""

    classes: tuple[ClassPoint, ...]
    steady: Steady
    output_tok_per_s: float
    total_tok_per_s: float


class Case:
    """A layout, its traffic and its pools' facts."""

    def __init__(
        self,
        models: Models,
        service: ResolvedService,
        pools: tuple[Sized, ...],
        *,
        classes: tuple[ClassDemand, ...],
    ) -> None:
        self.models, self.service, self.pools, self.classes = models, service, pools, classes
        self.prefill = tuple(p for p in pools if p.pool.role is Role.PREFILL)
        self.decode = tuple(p for p in pools if p.pool.role is not Role.PREFILL)
        self.colocated = not self.prefill
        self.paths = self._paths()
        self._points: dict[int, Point] = {}

    def _paths(self) -> tuple[KvPath, ...]:
        """One path for each prefill pool, to the first decode pool."""
        if not self.prefill or not self.decode:
            return ()
        per_group: dict[str, int] = {}
        for p in self.pools:
            per_group[p.pool.group.name] = (
                per_group.get(p.pool.group.name, 0) + p.pool.replicas * p.pool.shape.accelerators
            )
        group = self.pools[0].pool.group
        same = len(per_group) == 1 and per_group[group.name] <= group.per_node
        target = self.decode[0].pool
        return tuple(
            kv_path(
                self.service,
                self.models.resolved.fabric,
                Endpoint(p.pool.group, p.pool.shape),
                decode=Endpoint(target.group, target.shape),
                same_node=same,
            )
            for p in self.prefill
        )

    def times(self, sized: Sized) -> tuple[StepTimes, StepTimes, StepTimes]:
        """(worst, likely, best) step times of a pool's replicas."""
        engine = self.models.engine(self.service, sized.pool.group, sized.pool.shape)
        return engine.worst, engine.likely, engine.best

    def at_corner(self, corner: int) -> Point:
        """At all constants' cautious (0), likely (1) or hopeful (2) end."""
        return Evaluation(self, [self.times(p)[corner] for p in self.pools]).point()

    def at_draw(self, draw: int) -> Point:
        """At one of the shared draws of the constants."""
        if draw not in self._points:
            drawn = [self.models.drawn(self.service, p.pool.group, p.pool.shape)[draw] for p in self.pools]
            self._points[draw] = Evaluation(self, drawn).point()
        return self._points[draw]


class Evaluation:
    """One case at one set of constants."""

    def __init__(self, case: Case, times: list[StepTimes]) -> None:
        self.case, self.classes = case, case.classes
        by_pool = list(zip(case.pools, times, strict=True))
        self.decode = [(p, t) for p, t in by_pool if p.pool.role is not Role.PREFILL]
        self.prompts = [
            (p, PromptTimes(t, p.fit.max_num_batched_tokens))
            for p, t in by_pool
            if p.pool.role is Role.PREFILL
        ]
        self.values: Values = times[0].values
        self.weights = list(nominal_weights(self.classes))

    def point(self) -> Point:
        """Steady state and latencies; the mix of several classes follows from the result, so it is found in rounds."""
        rounds = 1 if len(self.classes) == 1 and not self._lockstep else _MIX_ROUNDS
        self._mix()
        steady = self._solve()
        for _ in range(rounds - 1):
            total = sum(steady.rates)
            if total > 0:
                self.weights = [x / total for x in steady.rates]
            self._mix(steady)
            steady = self._solve()
        points = tuple(self._class_point(i, steady) for i in range(len(self.classes)))
        out = sum(x * c.osl.mean for x, c in zip(steady.rates, self.classes, strict=True))
        prompt = sum(x * c.isl.mean for x, c in zip(steady.rates, self.classes, strict=True))
        return Point(points, steady, out, out + prompt)

    @property
    def _lockstep(self) -> bool:
        """Data-parallel ranks of a mixture of experts step together: one rank's prompt stalls them all."""
        return self.case.colocated and any(p.fit.ranks > 1 for p, _ in self.decode)

    def _mix(self, steady: Steady | None = None) -> None:
        """Means over the running sequences and over the requests, and the stall that one output token carries."""
        tokens = [w * c.osl.mean * c.steps_per_token for w, c in zip(self.weights, self.classes, strict=True)]
        self.context = sum(t * c.context for t, c in zip(tokens, self.classes, strict=True)) / sum(tokens)
        self.stalls = [0.0] * len(self.decode)
        if not self.case.colocated:
            return
        for i, (pool, times) in enumerate(self.decode):
            prompt = PromptTimes(times, self._chunk(pool))
            work = sum(w * prompt.stall_s(c) for w, c in zip(self.weights, self.classes, strict=True))
            share = 1 / pool.fit.ranks
            if pool.fit.ranks > 1 and steady is not None:
                mixed = self._mixed_per_step(i, steady)
                share = max(share, -math.expm1(-mixed) / mixed if mixed > 0 else 1.0)
            self.stalls[i] = work * share / sum(tokens)

    def _chunk(self, pool: Sized) -> float:
        """Prompt tokens a mixed step has room for."""
        running = pool.limit / pool.fit.ranks
        return max(pool.fit.max_num_batched_tokens - running, pool.fit.max_num_batched_tokens / 4)

    def _solve(self) -> Steady:
        return Balance(self.classes, self._prefill_station(), tuple(self._decode_stations())).solve()

    def _decode_stations(self) -> list[DecodeStation]:
        return [
            DecodeStation(p.pool.replicas, p.limit, self._step(t, stall))
            for (p, t), stall in zip(self.decode, self.stalls, strict=True)
        ]

    def _step(self, times: StepTimes, stall: float) -> Callable[[float], float]:
        context = self.context
        kappa = times.values.kappa if self.case.colocated else 1.0
        return lambda batch: kappa * times.decode(batch, context) + batch * stall

    def _prefill_station(self) -> PrefillStation:
        return self._colocated_station() if self.case.colocated else self._disaggregated_station()

    def _disaggregated_station(self) -> PrefillStation:
        """Each pool gets requests in proportion to its capacity, so that all are equally loaded."""
        speeds, servers = [], 0.0
        for pool, prompt in self.prompts:
            engines = pool.pool.replicas * pool.fit.ranks
            mean = sum(w * prompt.busy_s(c) for w, c in zip(self.weights, self.classes, strict=True))
            speeds.append(engines / mean)
            servers += engines
        shares = [s / sum(speeds) for s in speeds]
        load = tuple(
            sum(
                share * prompt.busy_s(c) / (pool.pool.replicas * pool.fit.ranks)
                for share, (pool, prompt) in zip(shares, self.prompts, strict=True)
            )
            for c in self.classes
        )
        self.shares = shares
        kv_speed = self._kv_speed()
        kv_bytes = [self.case.paths[0].bytes_for(c.computed(c.isl.mean)) for c in self.classes]
        mean_bytes = sum(w * b for w, b in zip(self.weights, kv_bytes, strict=True))
        return PrefillStation(
            servers=servers,
            service_s=servers / sum(speeds),
            load=load,
            kv_load=tuple(b / kv_speed for b in kv_bytes),
            kv_s=mean_bytes / kv_speed,
            time_s=tuple(self._prompt_path_s(c, c.isl.mean) for c in self.classes),
        )

    def _kv_speed(self) -> float:
        """KV bytes/s (counted once) that all prefill and all decode replicas can move together."""
        total = 0.0
        decode_engines = sum(p.pool.replicas * p.fit.ranks for p, _ in self.decode)
        prefill_engines = sum(p.pool.replicas * p.fit.ranks for p, _ in self.prompts)
        for (pool, _), path in zip(self.prompts, self.case.paths, strict=True):
            total += pool.pool.replicas * pool.fit.ranks * path.speed(self.values)
        return total * min(1.0, decode_engines / prefill_engines)

    def _prompt_path_s(self, c: ClassDemand, isl: float) -> float:
        """Hops, prompt and transfer of one request that waits for nothing, mean over the pools."""
        total = 2 * self.values.hop_s
        for share, (_, prompt), path in zip(self.shares, self.prompts, self.case.paths, strict=True):
            total += share * (
                prompt.alone_s(c.computed(isl), c.squares(isl)) + path.seconds(c.computed(isl), self.values)
            )
        return total

    def _colocated_station(self) -> PrefillStation:
        """Prompts wait for room in the mixed steps of their replica."""
        servers = float(sum(p.pool.replicas * p.fit.ranks for p, _ in self.decode))
        pool, times = self.decode[0]
        step = times.values.kappa * times.decode(pool.limit / 2, self.context)
        prompt = PromptTimes(times, self._chunk(pool))
        service = [prompt.mixed_busy_s(c, step) for c in self.classes]
        return PrefillStation(
            servers=servers,
            service_s=sum(w * s for w, s in zip(self.weights, service, strict=True)),
            load=tuple(s / servers for s in service),
            kv_load=(0.0,) * len(service),
            kv_s=0.0,
            time_s=tuple(
                self.values.hop_s + self._beside(prompt, c, c.isl.mean, step_s=step) for c in self.classes
            ),
        )

    @staticmethod
    def _beside(prompt: PromptTimes, c: ClassDemand, isl: float, *, step_s: float) -> float:
        return prompt.mixed_s(c.computed(isl), c.squares(isl), step_s=step_s)

    def _mixed_per_step(self, i: int, steady: Steady) -> float:
        """Prompt chunks that start per decode step of one replica of pool i."""
        pool, times = self.decode[i]
        prompt = PromptTimes(times, self._chunk(pool))
        replicas = sum(p.pool.replicas for p, _ in self.decode)
        chunks = sum(
            x * prompt.steps(c.computed(c.isl.mean)) for x, c in zip(steady.rates, self.classes, strict=True)
        )
        return chunks / replicas * steady.steps[i]

    def _class_point(self, i: int, steady: Steady) -> ClassPoint:
        c = self.classes[i]
        itl = self._itl(steady)
        ttft = self._ttft(i, steady)
        mean_step = steady.step_s * c.steps_per_token
        lengths = (c.osl.p50, c.osl.p90, c.osl.p99)
        e2e = [
            ttft[0] + max(0.0, lengths[0] - 1) * mean_step
            + math.hypot(t - ttft[0], max(0.0, n - lengths[0]) * mean_step)
            for t, n in zip(ttft, lengths, strict=True)
        ]  # fmt: skip
        per_token = tuple(x * c.steps_per_token for x in itl)
        return ClassPoint(
            steady.rates[i], ttft, (per_token[0], per_token[1], per_token[2]), (e2e[0], e2e[1], e2e[2])
        )

    def _ttft(self, i: int, steady: Steady) -> Quantiles:
        c = self.classes[i]
        probability = queueing.wait_probability(self._servers(), steady.rho)
        lengths = (c.isl.p50, c.isl.p90, c.isl.p99)
        base = [self._alone(c, n, steady) for n in lengths]
        waits = [
            queueing.wait_percentile(steady.wait_s, probability, q)
            + queueing.wait_percentile(steady.kv_wait_s, steady.kv_rho, q)
            for q in _SCORES
        ]
        fixed = steady.decode_wait_s[i] + steady.step_s
        out = [
            fixed + base[0] + waits[0] + math.hypot(b - base[0], w - waits[0])
            for b, w in zip(base, waits, strict=True)
        ]
        return out[0], out[1], out[2]

    def _servers(self) -> float:
        pools = self.decode if self.case.colocated else self.prompts
        return float(sum(p.pool.replicas * p.fit.ranks for p, _ in pools))

    def _alone(self, c: ClassDemand, isl: float, steady: Steady) -> float:
        if not self.case.colocated:
            return self._prompt_path_s(c, isl)
        pool, times = self.decode[0]
        step = times.values.kappa * times.decode(steady.batches[0], self.context)
        return (
            self.values.hop_s
            + step / 2
            + self._beside(PromptTimes(times, self._chunk(pool)), c, isl, step_s=step)
        )

    def _itl(self, steady: Steady) -> Quantiles:
        """Percentiles of the decode step as the batch varies.

        In a colocated replica a share of the steps carries a prompt: the percentile jumps where that share passes
        100 - percentile.
        """
        i = max(range(len(self.decode)), key=lambda n: steady.steps[n])
        pool, times = self.decode[i]
        kappa = times.values.kappa if self.case.colocated else 1.0
        batch = steady.batches[i]
        in_all = sum(b * p.pool.replicas for b, (p, _) in zip(steady.batches, self.decode, strict=True))
        caps = sum(c.cap for c in self.classes)
        loose = max(0.0, 1 - in_all / caps) if caps < math.inf else 1.0
        steps = [
            kappa * times.decode(min(pool.limit, batch + z * math.sqrt(batch * loose)), self.context)
            for z in _SCORES.values()
        ]
        if not self.case.colocated:
            return steps[0], steps[1], steps[2]
        stalled = self._stalled(i, steady)
        out = []
        for q, step in zip(_SCORES, steps, strict=True):
            extra = max((s for share, s in stalled if share > 1 - q / 100), default=0.0)
            out.append(step + extra)
        return out[0], out[1], out[2]

    def _stalled(self, i: int, steady: Steady) -> list[tuple[float, float]]:
        """(share of steps stalled at least this long, stall) of a colocated replica, one entry per class."""
        pool, times = self.decode[i]
        prompt = PromptTimes(times, self._chunk(pool))
        replicas = sum(p.pool.replicas for p, _ in self.decode)
        found = []
        for x, c in zip(steady.rates, self.classes, strict=True):
            per_step = x / replicas * prompt.steps(c.computed(c.isl.mean)) * steady.steps[i]
            found.append((prompt.chunk_s(c.computed(c.isl.mean), c.squares(c.isl.mean)), per_step))
        found.sort(reverse=True)
        out, seen = [], 0.0
        for stall, per_step in found:
            seen += per_step
            out.append((-math.expm1(-seen), stall))
        return out
