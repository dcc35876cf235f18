"""How much the proxy lets in: the planned load whole, and no more than decode carries without preempting often.

The proxy counts a request from admission to its last byte, and with every token it will ever hold. Decode holds it only
after its prefill, and on average half of its output: a plan of N sequences would be refused long before it has N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from disaggc.ir.plan import Expectation, Overcommit, Pool, Ratio, Role
from disaggc.resolve.model import ClassLoad, ResolvedService

_TAIL_SCORE = 2.33
"""Standard deviations that 99 of 100 moments stay under."""
_STEP = 1000
"""Factors are rounded up to a thousandth: no byte of the plan hangs on the last bit of a sum."""
_MOST = 100.0
"""What the routing file allows."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Replicas of one pool that answer clients, and what each of them runs and holds at most."""

    replicas: int
    sequences: int
    kv_tokens: int


def overcommit(
    service: ResolvedService,
    pools: Sequence[Pool],
    predicted: Expectation,
    *,
    split: Ratio | None,
) -> Overcommit:
    """The factors of a plan's service."""
    serving = [
        Serving(
            _serving(pool, split),
            pool.memory.sequences * pool.shape.dp,
            pool.memory.kv_tokens * pool.shape.dp,
        )
        for pool in pools
        if pool.role is not Role.PREFILL
    ]
    return overcommit_of(service, serving, predicted)


def overcommit_of(service: ResolvedService, serving: Sequence[Serving], predicted: Expectation) -> Overcommit:
    """Factors >= 1 on the sequences and the KV tokens of the side that answers.

    Requests let in: the larger of the pinned sequences (memory holds those in 99 of 100 moments of the steady state,
    `perf.memory`) and the requests that the plan has in flight. Tokens let in: as many as those requests reserve.
    """
    proxies = service.given.proxy.replicas
    replicas = sum(pool.replicas for pool in serving)
    sequences = sum(pool.sequences * pool.replicas for pool in serving)
    kv_tokens = sum(pool.kv_tokens * pool.replicas for pool in serving)
    present = {load.name: _present(load, predicted) for load in service.classes}
    planned = sum(present.values())
    # each of several proxies sees its own part only, and takes the whole for that times their number
    planned += _TAIL_SCORE * math.sqrt(planned * (proxies - 1)) + replicas * (proxies - 1)
    # a replica is full when one whole request more does not fit
    inside = planned + replicas if planned > sequences else float(sequences)
    mean, deviation = _reserved(service, present, predicted)
    tokens = inside * mean + _TAIL_SCORE * deviation * math.sqrt(inside) + replicas * proxies * mean
    return Overcommit(seqs=_factor(inside / sequences), kv=_factor(tokens / kv_tokens))


def _serving(pool: Pool, split: Ratio | None) -> int:
    """Replicas that answer clients; a flexible pool's split may move, so what counts is the planned one."""
    return split.decode if pool.role is Role.FLEXIBLE and split is not None else len(pool.replicas)


def _present(load: ClassLoad, predicted: Expectation) -> float:
    """Requests of a class in flight: the clients' cap, else Little's law with the p90 for the mean, and a tail."""
    if load.concurrency is not None:
        return float(load.concurrency)
    outcome = predicted.classes[load.name]
    mean = outcome.rate.value * outcome.e2e_ms.p90.value / 1000
    return mean + _TAIL_SCORE * math.sqrt(mean)


def _reserved(
    service: ResolvedService, present: dict[str, float], predicted: Expectation
) -> tuple[float, float]:
    """(mean, deviation) of the tokens the proxy reserves for one request: its own prompt and the mean output of all."""
    crowd = sum(present.values())
    shares = [present[load.name] / crowd for load in service.classes]
    prompt = sum(w * load.isl.mean for w, load in zip(shares, service.classes, strict=True))
    square = sum(
        w * load.isl.mean**2 * (1 + load.isl.cv**2) for w, load in zip(shares, service.classes, strict=True)
    )
    rates = [predicted.classes[load.name].rate.value for load in service.classes]
    output = sum(x * load.osl.mean for x, load in zip(rates, service.classes, strict=True)) / sum(rates)
    return prompt + output, math.sqrt(max(0.0, square - prompt * prompt))


def _factor(value: float) -> float:
    return min(_MOST, max(1.0, math.ceil(value * _STEP) / _STEP))
