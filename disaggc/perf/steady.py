"""The steady state of a layout at one set of constants: rates, batches, waits. Pure numbers, no ranges.

Two nested roots. Outside: the fill of the decode pools at which they produce the tokens that the classes ask for.
Inside: the load of the prefill pools at which waiting slows the capped classes to just that load. Both functions fall,
so each root is unique.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disaggc.perf import queueing
from disaggc.perf.demand import ClassDemand

_TOLERANCE = 1e-5
_ROUNDS = 60


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


@dataclass(frozen=True, slots=True)
class Settled:
    """What prefill serves when the decode step is given: rates per class, loads, mean waits."""

    rates: Sequence[float]
    rho: float
    kv_rho: float
    wait_s: float
    kv_wait_s: float


def falling_root(f: Callable[[float], float], low: float, high: float, *, scale: float = 0.0) -> float:
    """Where a falling function crosses zero (Illinois method); the nearer end where it does not cross.

    scale: what its values are small against; f(low) where nothing is said, which a crowd may make as large as it likes.
    """
    f_high = f(high)
    if f_high >= 0:
        return high
    f_low = f(low)
    if f_low <= 0:
        return low
    small = _TOLERANCE * (scale or f_low)
    side = 0
    x = high
    for _ in range(_ROUNDS):
        x = (low * f_high - high * f_low) / (f_high - f_low)
        y = f(x)
        if -small < y < small:
            return x
        if y > 0:
            low, f_low = x, y
            f_high = f_high / 2 if side > 0 else f_high
            side = 1
        else:
            high, f_high = x, y
            f_low = f_low / 2 if side < 0 else f_low
            side = -1
    return x


class Balance:
    """One layout's equations at one set of constants."""

    def __init__(
        self, classes: tuple[ClassDemand, ...], prefill: PrefillStation, decode: tuple[DecodeStation, ...]
    ) -> None:
        self.classes, self.prefill, self.decode = classes, prefill, decode
        caps = sum(c.cap for c in classes)
        self._bound = queueing.closed_wait_bound(caps, prefill.service_s, prefill.servers)
        crowd = max(0.0, 1 - prefill.servers / caps) if caps < math.inf else 1.0
        self._variability = crowd * max(c.variability for c in classes) if classes else 0.0
        self._steps = tuple(c.osl.mean * c.steps_per_token for c in classes)
        self._terms = tuple(
            zip(classes, prefill.time_s, self._steps, prefill.load, prefill.kv_load, strict=True)
        )

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
        return [min(c.rate, c.cap / (wait_s + t + steps * step_s)) for c, t, steps, _, _ in self._terms]

    def load_at(self, step_s: float, wait_s: float) -> float:
        """Load of the busier of prefill and network at those times."""
        rho = kv_rho = 0.0
        for c, t, steps, share, kv_share in self._terms:
            rate = c.cap / (wait_s + t + steps * step_s)
            rate = min(rate, c.rate)
            rho += rate * share
            kv_rho += rate * kv_share
        return max(rho, kv_rho)

    def loads(self, rates: Sequence[float]) -> tuple[float, float]:
        """(prefill, network) share of capacity in use."""
        rho = kv_rho = 0.0
        for x, (_, _, _, share, kv_share) in zip(rates, self._terms, strict=True):
            rho += x * share
            kv_rho += x * kv_share
        return rho, kv_rho

    def settle(self, step_s: float) -> Settled:
        """What the classes ask for and how long they wait for it when a decode step takes step_s."""
        rates = self.rates(step_s, 0.0)
        rho, kv_rho = self.loads(rates)
        ratio = kv_rho / rho if rho > 0 else 0.0
        top = min(max(rho, kv_rho), queueing.SATURATED)
        if all(c.cap == math.inf or x == c.rate for c, x in zip(self.classes, rates, strict=True)):
            wait, kv_wait = self.waits(top, ratio)
            held = self.rates(step_s, wait + kv_wait)
            if held == rates:
                return self._within(Settled(rates, rho, kv_rho, wait, kv_wait))

        def excess(u: float) -> float:
            wait, kv_wait = self.waits(u, ratio)
            return self.load_at(step_s, wait + kv_wait) - u

        u = falling_root(excess, 0.0, top, scale=top)
        wait, kv_wait = self.waits(u, ratio)
        rates = self.rates(step_s, wait + kv_wait)
        return self._within(Settled(rates, *self.loads(rates), wait, kv_wait))

    @staticmethod
    def _within(found: Settled) -> Settled:
        """The same with no more served than prefill and network can."""
        over = max(found.rho, found.kv_rho) / queueing.SATURATED
        if over <= 1:
            return found
        rates = [x / over for x in found.rates]
        return Settled(rates, found.rho / over, found.kv_rho / over, found.wait_s, found.kv_wait_s)

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
            return self._wanted(self.settle(step).rates) - flow

        fill = falling_root(excess, 0.0, 1.0)
        flow, step = self.flow(fill)
        found = self.settle(step)
        rates, rho, kv_rho, wait, kv_wait = (
            found.rates,
            found.rho,
            found.kv_rho,
            found.wait_s,
            found.kv_wait_s,
        )
        wanted = self._wanted(rates)
        saturated = fill >= 1 and wanted > flow * (1 + _TOLERANCE)
        if saturated:
            rates = [x * flow / wanted for x in rates]
            rho, kv_rho = self.loads(rates)
            wait, kv_wait = self.waits(max(rho, kv_rho), kv_rho / rho if rho > 0 else 0.0)
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

    def _wanted(self, rates: Sequence[float]) -> float:
        """Sequence steps per second that these requests ask of decode."""
        return sum(x * steps for x, steps in zip(rates, self._steps, strict=True))

    def _unserved(self, rates: Sequence[float], step_s: float, wait_s: float) -> tuple[float, ...]:
        """What a class waits beyond the queues above: in a full layout its cap stands still, or an open queue grows."""
        out = []
        for c, x, t, steps in zip(self.classes, rates, self.prefill.time_s, self._steps, strict=True):
            seen = wait_s + t + steps * step_s
            held = c.cap / x - seen if x > 0 else 0.0
            offered = queueing.overload_wait(c.rate, x) if c.rate < math.inf else math.inf
            extra = min(held, offered)
            out.append(max(0.0, extra) if x < min(c.rate, c.cap / seen) * (1 - 1e-4) else 0.0)
        return tuple(out)
