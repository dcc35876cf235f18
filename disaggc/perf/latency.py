"""Percentiles of what each class sees, read off a steady state. Knows no range and no search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from disaggc.perf import queueing
from disaggc.perf.constants import Z90
from disaggc.perf.stations import Stations
from disaggc.perf.steady import Steady

SCORES = {50: 0.0, 90: Z90, 99: 2.3263478740408408}
"""Percentile -> standard normal score."""
Quantiles = tuple[float, float, float]
"""p50, p90, p99."""


@dataclass(frozen=True, slots=True)
class ClassPoint:
    """What one class sees at one set of constants; seconds, p50/p90/p99.

    token_s: median over its requests of the mean time per token after the first, prompts in between counted.
    """

    rate: float
    token_s: float
    ttft: Quantiles
    itl: Quantiles
    e2e: Quantiles


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Parts of a first token, seconds. alone: front end, prompt and transfer that wait for nothing, by prompt length.

    prefill_wait, network_wait: for the others before it. bunched: for those that come with it, median. joined: from
    then on, of which `boundary` is the phase of the decode step it meets.
    """

    alone: Quantiles
    prefill_wait: Quantiles
    network_wait: Quantiles
    bunched: float
    joined: float
    boundary: Quantiles

    @property
    def median(self) -> float:
        """Those that come together make up the queue where they are more than it."""
        return self.joined + self.alone[0] + max(self.prefill_wait[0] + self.network_wait[0], self.bunched)

    def beyond(self) -> tuple[Quantiles, Quantiles, Quantiles]:
        """At p50, p90 and p99: what longer prompts, longer waits and the phase add to the median, as squares."""
        first, *longer = (
            (
                alone - self.alone[0],
                prompt + moved - self.prefill_wait[0] - self.network_wait[0],
                phase - self.boundary[0],
            )
            for alone, prompt, moved, phase in zip(
                self.alone, self.prefill_wait, self.network_wait, self.boundary, strict=True
            )
        )
        return first, longer[0], longer[1]


@dataclass(frozen=True, slots=True)
class Step:
    """Time between two tokens, seconds. pool: position of the slowest pool. stalled: share of its steps with a prompt.

    plain: without a prompt. stall: what one adds, where the percentile sees it.
    """

    pool: int
    plain: Quantiles
    stall: Quantiles
    stalled: float

    @property
    def percentiles(self) -> Quantiles:
        """p50, p90, p99 of both together."""
        return _three([step + stall for step, stall in zip(self.plain, self.stall, strict=True)])


def _three(values: Sequence[float]) -> Quantiles:
    p50, p90, p99 = values
    return p50, p90, p99


class Latencies:
    """Latencies of a layout in its steady state. mixed: share of stalled steps of a finite run, where one is meant."""

    def __init__(self, stations: Stations, steady: Steady, *, mixed: float = 0.0) -> None:
        self._stations, self._steady, self._mixed = stations, steady, mixed
        pools = stations.decode if stations.colocated else stations.prefill
        self._servers = float(sum(p.sized.engines for p in pools))
        decode = range(len(stations.decode))
        self._plain = [stations.decode_s(i, steady.batches[i]) for i in decode]
        self._itl = self.step().percentiles

    def of_class(self, i: int) -> ClassPoint:
        """TTFT, ITL and E2E of class i."""
        c, steady = self._stations.classes[i], self._steady
        ttft = self._ttft(i)
        per_token = steady.step_s * c.steps_per_token
        median, *longer = (max(0.0, n - 1) * per_token for n in (c.osl.p50, c.osl.p90, c.osl.p99))
        p90, p99 = (
            ttft[0] + median + math.hypot(t - ttft[0], n - median)
            for t, n in zip(ttft[1:], longer, strict=True)
        )
        a, b, d = (step * c.steps_per_token for step in self._itl)
        return ClassPoint(steady.rates[i], per_token, ttft, (a, b, d), (ttft[0] + median, p90, p99))

    def prompt_s(self, i: int) -> float:
        """First token of a typical request of class i that waits for nothing."""
        c = self._stations.classes[i]
        return self._joined_s(i) + self._stations.alone_s(c, c.isl.p50, self._plain)

    def standing_s(self, i: int) -> float:
        """What a request of class i waits although nothing is left to chance: its loop is longer than prefill allows.

        A run shows that part itself, once its queue has built up.
        """
        caps, flow = sum(c.cap for c in self._stations.classes), sum(self._steady.rates)
        if math.isinf(caps) or flow <= 0:
            return 0.0
        c, steady = self._stations.classes[i], self._steady
        life = self.prompt_s(i) + c.osl.mean * c.steps_per_token * steady.step_s
        return max(0.0, caps * max(steady.rho, steady.kv_rho) / flow - life)

    def _joined_s(self, i: int) -> float:
        """From the end of prompt and transfer to the first token: a request joins at the next step boundary.

        That is anywhere from none to one step away; a fetched prompt then takes a decode step to its first token, a
        colocated one has it at the end of its last chunk.
        """
        own = 0.0 if self._stations.colocated else self._steady.step_s
        return self._steady.decode_wait_s[i] + own + self._steady.step_s / 2

    def first_token(self, i: int) -> FirstToken:
        """What the first token of class i is made of."""
        c, steady = self._stations.classes[i], self._steady
        probability = queueing.wait_probability(self._servers, steady.rho)
        all_others, moved = self._longest_waits()
        prompts = [min(queueing.wait_percentile(steady.wait_s, probability, q), all_others) for q in SCORES]
        network = [min(queueing.wait_percentile(steady.kv_wait_s, steady.kv_rho, q), moved) for q in SCORES]
        alone = [self._stations.alone_s(c, n, self._plain) for n in (c.isl.p50, c.isl.p90, c.isl.p99)]
        return FirstToken(
            alone=_three(alone),
            prefill_wait=_three(prompts),
            network_wait=_three(network),
            bunched=self._bunched_s(i),
            joined=self._joined_s(i),
            boundary=_three([steady.step_s * q / 100 for q in SCORES]),
        )

    def _ttft(self, i: int) -> Quantiles:
        """Waits, prompt and phase vary independently: their distances from the median add as squares."""
        first = self.first_token(i)
        p50, p90, p99 = (first.median + math.hypot(*beyond) for beyond in first.beyond())
        return p50, p90, p99

    def _longest_waits(self) -> tuple[float, float]:
        """For prompts and for transfers: nobody in a closed loop waits longer than all the others take."""
        caps, flow = sum(c.cap for c in self._stations.classes), sum(self._steady.rates)
        if math.isinf(caps) or flow <= 0:
            return math.inf, math.inf
        longest = (
            max(mean, queueing.closed_wait_bound(caps, rho / flow, 1.0))
            for mean, rho in (
                (self._steady.wait_s, self._steady.rho),
                (self._steady.kv_wait_s, self._steady.kv_rho),
            )
        )
        prompts, transfers = longest
        return prompts, transfers

    def _bunched_s(self, i: int) -> float:
        """What the other prompts that come together with one of class i add to it, median.

        Requests of a closed loop that started together end together, so their successors meet: as many as the loop's
        fluctuation, the square root of the requests in flight on one engine, times `burst`.
        """
        c, stations = self._stations.classes[i], self._stations
        prompt_s = stations.prompt_work_s(c)
        if c.cap == math.inf or c.rate * prompt_s < self._servers:  # a start at this rate makes no queue
            return 0.0
        together = stations.values.burst * math.sqrt(c.cap / self._servers)
        return max(0.0, together - 1) * prompt_s

    def step(self) -> Step:
        """The step of the slowest pool as its batch varies, and what prompts add to it.

        A share of the steps carries a prompt in a colocated replica, and takes up fetched ones in a decode replica: the
        percentile jumps where that share passes 100 - percentile.
        """
        stations, steady = self._stations, self._steady
        i = max(range(len(stations.decode)), key=lambda n: steady.steps[n])
        batch, limit = steady.batches[i], stations.decode[i].sized.limit
        spread = math.sqrt(batch * self._loose())
        stalled = self._stalled(i)
        return Step(
            pool=i,
            plain=_three([stations.decode_s(i, min(limit, batch + z * spread)) for z in SCORES.values()]),
            stall=_three(
                [max((stall for share, stall in stalled if share > 1 - q / 100), default=0.0) for q in SCORES]
            ),
            stalled=max((share for share, _ in stalled), default=0.0),
        )

    def _loose(self) -> float:
        """Share of the variance of a Poisson batch that is left when a closed loop holds the total."""
        caps = sum(c.cap for c in self._stations.classes)
        if math.isinf(caps):
            return 1.0
        pools = zip(self._steady.batches, self._stations.decode, strict=True)
        return max(0.0, 1 - sum(b * p.sized.pool.replicas for b, p in pools) / caps)

    def _stalled(self, i: int) -> list[tuple[float, float]]:
        """(share of steps stalled at least this long, stall) of pool i, one entry for each class."""
        stations = self._stations
        times = stations.stalls_s(i)
        found = sorted(zip(times, stations.prompt_steps(i, self._steady), strict=True), reverse=True)
        whole = -math.expm1(-sum(per_step for _, per_step in found))
        more = max(1.0, self._mixed / whole) if whole > 0 else 1.0
        out, seen = [], 0.0
        for stall, per_step in found:
            seen += per_step
            out.append((min(1.0, -math.expm1(-seen) * more), stall))
        return out
