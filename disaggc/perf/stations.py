"""The pools of a layout at one set of constants, joined into the two stations of the steady state.

Knows step times, memory limits and KV paths; the equations stand in `steady`, percentiles in `latency`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disaggc.ir.plan import Role
from disaggc.perf.demand import ClassDemand, nominal_weights
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.layout import PoolLayout
from disaggc.perf.memory import Fit
from disaggc.perf.prefill import PromptTimes
from disaggc.perf.steady import Balance, DecodeStation, PrefillStation, Steady
from disaggc.perf.transfer import KvPath

_MIX_ROUNDS = 3
_TYPICAL_FILL = 0.5
"""Share of the sequence limit at which the decode step beside a colocated prompt is taken before it is known."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A pool with the memory it was found to have."""

    pool: PoolLayout
    fit: Fit

    @property
    def limit(self) -> float:
        """Sequences one replica runs at most."""
        pinned, asked = self.fit.max_num_seqs, self.pool.max_seqs
        return float((pinned if asked is None else min(asked, pinned)) * self.fit.ranks)

    @property
    def engines(self) -> int:
        """Data-parallel ranks of all replicas: each takes its own prompts."""
        return self.pool.replicas * self.fit.ranks


@dataclass(frozen=True, slots=True)
class Running:
    """A pool at one set of constants. prompts: its prompt times, in a colocated pool beside decode."""

    sized: Sized
    times: StepTimes
    prompts: PromptTimes


class Stations:
    """One layout at one set of constants."""

    def __init__(
        self,
        classes: tuple[ClassDemand, ...],
        paths: tuple[KvPath, ...],
        pools: list[tuple[Sized, StepTimes]],
    ) -> None:
        self.classes, self.paths = classes, paths
        self.values = pools[0][1].values
        self.prefill = [_running(p, t, 0.0) for p, t in pools if p.pool.role is Role.PREFILL]
        self.colocated = not self.prefill
        beside = 1.0 if self.colocated else 0.0
        self.decode = [_running(p, t, beside) for p, t in pools if p.pool.role is not Role.PREFILL]
        self.weights: Sequence[float] = nominal_weights(classes)
        self.context = 0.0
        self.stalls: list[float] = []
        self.shares: list[float] = []

    def solve(self) -> Steady:
        """The steady state. With several classes their mix follows from the result, so it is found in rounds."""
        self._mix(None)
        steady = self._settled()
        for _ in range(0 if len(self.classes) == 1 and not self._lockstep else _MIX_ROUNDS - 1):
            total = sum(steady.rates)
            if total > 0:
                self.weights = [x / total for x in steady.rates]
            self._mix(steady)
            steady = self._settled()
        return steady

    def decode_s(self, i: int, batch: float) -> float:
        """A step of decode pool i without prompts in it."""
        times = self.decode[i].times
        kappa = self.values.kappa if self.colocated else 1.0
        return kappa * times.decode(batch, self.context)

    def prompt_steps(self, i: int, steady: Steady) -> list[float]:
        """Steps with a chunk, or with the arrival of a fetched prompt, of each class per decode step of pool i."""
        replicas = sum(p.sized.pool.replicas for p in self.decode)
        prompts = self.decode[i].prompts
        return [
            x
            / replicas
            * (prompts.steps(c.computed(c.isl.mean)) if self.colocated else 1.0)
            * steady.steps[i]
            for x, c in zip(steady.rates, self.classes, strict=True)
        ]

    def stalls_s(self, i: int) -> list[float]:
        """What such a step takes beyond a plain one, of each class."""
        if self.colocated:
            prompts = self.decode[i].prompts
            return [prompts.chunk_s(c.computed(c.isl.mean), c.squares(c.isl.mean)) for c in self.classes]
        v = self.decode[i].times.values
        return [v.join_s + v.join_token_s * c.isl.mean for c in self.classes]

    def prompt_work_s(self, c: ClassDemand) -> float:
        """Time a mean prompt of a class adds to a full prompt step, mean over the pools that compute prompts."""
        pools = self.decode if self.colocated else self.prefill
        return sum(share * p.prompts.busy_s(c) for share, p in zip(self.shares, pools, strict=True))

    def alone_s(self, c: ClassDemand, isl: float, steps: Sequence[float]) -> float:
        """First token of a request that waits for nothing, without its first decode step, mean over the pools.

        steps: decode step of each colocated pool.
        """
        tokens, squares = c.computed(isl), c.squares(isl)
        if self.colocated:
            beside = zip(self.shares, self.decode, steps, strict=True)
            each = (
                share * pool.prompts.mixed_s(tokens, squares, step_s=step) for share, pool, step in beside
            )
            return self.values.hop_s + sum(each)
        total = 2 * self.values.hop_s
        for share, pool, path in zip(self.shares, self.prefill, self.paths, strict=True):
            total += share * sum(pool.prompts.fetched_s(tokens, squares, path, values=self.values))
        return total

    @property
    def _lockstep(self) -> bool:
        """Data-parallel ranks of a mixture of experts step together: one rank's prompt stalls them all."""
        return self.colocated and any(p.sized.fit.ranks > 1 for p in self.decode)

    def _mean(self, figures: Sequence[float]) -> float:
        return sum(w * figure for w, figure in zip(self.weights, figures, strict=True))

    def _mix(self, steady: Steady | None) -> None:
        """Mean context of the running sequences, and in colocated pools the stall that one output token carries."""
        tokens = [w * c.osl.mean * c.steps_per_token for w, c in zip(self.weights, self.classes, strict=True)]
        whole = sum(tokens)
        self.context = sum(t * c.context for t, c in zip(tokens, self.classes, strict=True)) / whole
        self.stalls = [0.0] * len(self.decode)
        if not self.colocated:
            return
        for i, pool in enumerate(self.decode):
            work = self._mean([pool.prompts.stall_s(c) for c in self.classes])
            share = 1 / pool.sized.fit.ranks
            if pool.sized.fit.ranks > 1 and steady is not None:
                mixed = sum(self.prompt_steps(i, steady))
                share = max(share, -math.expm1(-mixed) / mixed if mixed > 0 else 1.0)
            self.stalls[i] = work * share / whole

    def _settled(self) -> Steady:
        decode = tuple(
            DecodeStation(p.sized.pool.replicas, p.sized.limit, self._step(i))
            for i, p in enumerate(self.decode)
        )
        return Balance(self.classes, self.station(), decode).solve()

    def _step(self, i: int) -> Callable[[float], float]:
        stall = self.stalls[i]
        return lambda batch: self.decode_s(i, batch) + batch * stall

    def station(self) -> PrefillStation:
        """The pools that compute prompts, as the steady state sees them."""
        return self._colocated_station() if self.colocated else self._disaggregated_station()

    def _disaggregated_station(self) -> PrefillStation:
        busy = [[p.prompts.busy_s(c) for c in self.classes] for p in self.prefill]
        servers, load = self._spread(self.prefill, busy)
        speed = self._kv_speed()
        moved = [self.paths[0].bytes_for(c.computed(c.isl.mean)) / speed for c in self.classes]
        return PrefillStation(
            servers=servers,
            service_s=servers * self._mean(load),
            load=load,
            kv_load=tuple(moved),
            kv_s=self._mean(moved),
            time_s=tuple(self.alone_s(c, c.isl.mean, ()) for c in self.classes),
        )

    def _colocated_station(self) -> PrefillStation:
        """Prompts wait for room in the mixed steps of their replica."""
        steps = [self.decode_s(i, _TYPICAL_FILL * p.sized.limit) for i, p in enumerate(self.decode)]
        busy = [
            [p.prompts.mixed_busy_s(c, step) for c in self.classes]
            for p, step in zip(self.decode, steps, strict=True)
        ]
        servers, load = self._spread(self.decode, busy)
        return PrefillStation(
            servers=servers,
            service_s=servers * self._mean(load),
            load=load,
            kv_load=(0.0,) * len(load),
            kv_s=0.0,
            time_s=tuple(self.alone_s(c, c.isl.mean, steps) for c in self.classes),
        )

    def _spread(self, pools: list[Running], busy: list[list[float]]) -> tuple[float, tuple[float, ...]]:
        """(engines, load of one request/s of each class) when pools get requests by capacity: all equally loaded."""
        engines = [float(p.sized.engines) for p in pools]
        speeds = [count / self._mean(each) for count, each in zip(engines, busy, strict=True)]
        self.shares = [speed / sum(speeds) for speed in speeds]
        parts = list(zip(self.shares, busy, strict=True))
        servers = sum(engines)
        load = tuple(
            sum(share * each[k] for share, each in parts) / servers for k in range(len(self.classes))
        )
        return servers, load

    def _kv_speed(self) -> float:
        """KV bytes/s (counted once) that all prefill and all decode engines can move together."""
        out = sum(p.sized.engines for p in self.prefill)
        into = sum(p.sized.engines for p in self.decode)
        each = zip(self.prefill, self.paths, strict=True)
        return sum(p.sized.engines * path.speed(self.values) for p, path in each) * min(1.0, into / out)


def _running(sized: Sized, times: StepTimes, beside: float) -> Running:
    """A pool with its prompt times. beside: 1 where running sequences take their share of the step's token budget."""
    budget = float(sized.fit.max_num_batched_tokens)
    room = max(budget - beside * sized.limit / sized.fit.ranks, budget / 4)
    return Running(sized, times, PromptTimes(times, room))
