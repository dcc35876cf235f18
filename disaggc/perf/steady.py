"""The steady state of a layout at one set of constants: rates, batches, waits. Pure numbers, no ranges.

Two nested roots. Outside: the fill of the decode pools at which they produce the tokens that the classes ask for.
Inside: the load of the prefill pools at which waiting slows the capped classes to just that load. Both functions fall,
so each root is unique.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from disaggc.perf import queueing
from disaggc.perf.demand import ClassDemand

_TOLERANCE = 1e-6
_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class PrefillStation:
    """All prefill pools together.

    load: share of the pools' capacity one request/s of each class takes; kv_load: of the network's. time_s: prompt time
    and transfer of each class, without waiting. servers: engines in all.
    """

    servers: float
    service_s: float
    load: tuple[float, ...]
    kv_load: tuple[float, ...]
    kv_s: float
    time_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DecodeStation:
    """One decode (or colocated) pool: `limit` sequences per replica at most; step_s(batch) in the steady mix."""

    replicas: int
    limit: float
    step_s: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Steady:
    """A solved layout.

    rates: served, per class. step_s: mean decode step over the pools' flow. fill: share of the sequence limit in use.
    batches, steps: per decode pool. wait_s: mean wait for prefill; decode_wait_s: per class, for a decode slot.
    saturated: decode is full and does not keep up.
    """

    rates: tuple[float, ...]
    step_s: float
    fill: float
    batches: tuple[float, ...]
    steps: tuple[float, ...]
    rho: float
    kv_rho: float
    wait_s: float
    kv_wait_s: float
    decode_wait_s: tuple[float, ...]
    saturated: bool


def falling_root(f: Callable[[float], float], low: float, high: float) -> float:
    """Where a falling function crosses zero (Illinois method); the nearer end where it does not cross."""
    f_low, f_high = f(low), f(high)
    if f_low <= 0:
        return low
    if f_high >= 0:
        return high
    side = 0
    for _ in range(_ROUNDS):
        x = (low * f_high - high * f_low) / (f_high - f_low)
        y = f(x)
        if abs(high - low) < _TOLERANCE * high or y == 0:
            return x
        if y > 0:
            low, f_low = x, y
            f_high = f_high / 2 if side > 0 else f_high
            side = 1
        else:
            high, f_high = x, y
            f_low = f_low / 2 if side < 0 else f_low
            side = -1
        if abs(y) < _TOLERANCE * 1e-2:
            return x
    return x


class Balance:
    """One layout's equations at one set of constants."""

    def __init__(
        self, classes: tuple[ClassDemand, ...], prefill: PrefillStation, decode: tuple[DecodeStation, ...]
    ) -> None:
        self.classes, self.prefill, self.decode = classes, prefill, decode
        caps = sum(c.cap for c in classes)
        self._bound = (
            queueing.closed_wait_bound(caps, prefill.service_s, prefill.servers)
            if caps < math.inf
            else math.inf
        )
        crowd = max(0.0, 1 - prefill.servers / caps) if caps < math.inf else 1.0
        self._variability = crowd * max(c.variability for c in classes) if classes else 0.0
        self._open = all(c.cap == math.inf for c in classes)
        self._steps = tuple(c.osl.mean * c.steps_per_token for c in classes)

    def waits(self, u: float, ratio: float) -> tuple[float, float]:
        """(prefill wait, transfer wait) when the busier one is loaded to u; ratio = network load / prefill load."""
        p = self.prefill
        rho, kv_rho = (u / ratio, u) if ratio > 1 else (u, u * ratio)
        wait = queueing.wait_mean(
            p.service_s, p.servers, min(rho, queueing.SATURATED), variability=self._variability
        )
        kv = queueing.wait_mean(p.kv_s, 1.0, min(kv_rho, queueing.SATURATED), variability=0.5)
        return min(wait, self._bound), kv

    def rates(self, step_s: float, wait_s: float) -> list[float]:
        """Requests/s of each class when a decode step and the wait for prefill take this long."""
        return [
            min(c.rate, c.cap / (wait_s + t + steps * step_s))
            for c, t, steps in zip(self.classes, self.prefill.time_s, self._steps, strict=True)
        ]

    def loads(self, rates: list[float]) -> tuple[float, float]:
        """(prefill, network) share of capacity in use."""
        p = self.prefill
        return (
            sum(x * w for x, w in zip(rates, p.load, strict=True)),
            sum(x * w for x, w in zip(rates, p.kv_load, strict=True)),
        )

    def settle(self, step_s: float) -> tuple[list[float], float, float, float, float]:
        """(rates, prefill load, network load, prefill wait, network wait) when a decode step takes step_s."""
        rates = self.rates(step_s, 0.0)
        rho, kv_rho = self.loads(rates)
        ratio = kv_rho / rho if rho > 0 else 0.0
        top = max(rho, kv_rho)
        if top <= 0:
            return rates, 0.0, 0.0, 0.0, 0.0

        def excess(u: float) -> float:
            return max(self.loads(self.rates(step_s, sum(self.waits(u, ratio))))) - u

        u = min(top, queueing.SATURATED) if self._open else falling_root(excess, 0.0, queueing.SATURATED)
        wait, kv_wait = self.waits(u, ratio)
        rates = self.rates(step_s, wait + kv_wait)
        rho, kv_rho = self.loads(rates)
        over = max(rho, kv_rho) / queueing.SATURATED
        if over > 1:
            rates = [x / over for x in rates]
            rho, kv_rho = rho / over, kv_rho / over
        return rates, rho, kv_rho, wait, kv_wait

    def flow(self, fill: float) -> tuple[float, float]:
        """(steps x sequences per second, mean step) of the decode pools at this share of their limits."""
        total, weighted = 0.0, 0.0
        for pool in self.decode:
            batch = fill * pool.limit
            step = pool.step_s(batch)
            total += pool.replicas * batch / step
            weighted += pool.replicas * batch
        if total <= 0:
            return 0.0, max(pool.step_s(0.0) for pool in self.decode)
        return total, weighted / total

    def solve(self) -> Steady:
        """The steady state, or the state of an overload with what is served in it."""

        def excess(fill: float) -> float:
            flow, step = self.flow(fill)
            rates = self.settle(step)[0]
            return sum(x * s for x, s in zip(rates, self._steps, strict=True)) - flow

        fill = falling_root(excess, 0.0, 1.0)
        flow, step = self.flow(fill)
        rates, rho, kv_rho, wait, kv_wait = self.settle(step)
        wanted = sum(x * s for x, s in zip(rates, self._steps, strict=True))
        saturated = fill >= 1 and wanted > flow * (1 + 1e-9)
        if saturated:
            rates = [x * flow / wanted for x in rates]
            rho, kv_rho = self.loads(rates)
            ratio = kv_rho / rho if rho > 0 else 0.0
            wait, kv_wait = self.waits(max(rho, kv_rho), ratio)
        batches = tuple(fill * pool.limit for pool in self.decode)
        return Steady(
            rates=tuple(rates),
            step_s=step,
            fill=fill,
            batches=batches,
            steps=tuple(pool.step_s(b) for pool, b in zip(self.decode, batches, strict=True)),
            rho=rho,
            kv_rho=kv_rho,
            wait_s=wait,
            kv_wait_s=kv_wait,
            decode_wait_s=self._unserved(rates, step, wait + kv_wait),
            saturated=saturated,
        )

    def _unserved(self, rates: list[float], step_s: float, wait_s: float) -> tuple[float, ...]:
        """What a class waits beyond the queues above: in a full layout its cap stands still, or an open queue grows."""
        out = []
        for c, x, t, steps in zip(self.classes, rates, self.prefill.time_s, self._steps, strict=True):
            seen = wait_s + t + steps * step_s
            held = c.cap / x - seen if x > 0 else 0.0
            offered = queueing.overload_wait(c.rate, x) if c.rate < math.inf else math.inf
            extra = min(held, offered)
            out.append(max(0.0, extra) if x < min(c.rate, c.cap / seen) * (1 - 1e-4) else 0.0)
        return tuple(out)
