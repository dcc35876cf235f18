"""What a class sees in a run that ends: the fluid course of the run, and the steady state's chance around it."""

from __future__ import annotations

import math
from dataclasses import replace

from disaggc.perf.finite import Passed
from disaggc.perf.latency import SCORES, ClassPoint, Quantiles

_STRATA = 20
"""Equally likely parts of the steady state's own spread."""
_SHARES = (0.5, 0.9, 0.99)
_SCORES = tuple(SCORES.values())
_MOST = 48
"""Waits of the run looked at, evenly taken."""


def run_point(steady: ClassPoint, passed: Passed, prompt_s: float, *, standing_s: float) -> ClassPoint:
    """The steady state's figures of one class as a run with these waits shows them.

    prompt_s: its first token alone; standing_s: the part of the steady state's wait that is no chance.
    """
    ttft = _first_tokens(steady.ttft, passed, (prompt_s, standing_s))
    growth = passed.token_s / steady.token_s if steady.token_s > 0 else 1.0
    itl = tuple(max(step, steady.itl[0] * growth) for step in steady.itl)
    lives = _quantiles([(life, 1.0) for life in passed.lives])
    late = ttft[0] - _quantiles([(wait, 1.0) for wait in passed.waits])[0] - prompt_s
    median = lives[0] + max(0.0, late)
    spread = (
        median + math.hypot(e - steady.e2e[0], life - lives[0])
        for e, life in zip(steady.e2e[1:], lives[1:], strict=True)
    )
    p90, p99 = spread
    return replace(
        steady,
        rate=passed.rate,
        token_s=passed.token_s,
        ttft=ttft,
        itl=(steady.itl[0] * growth, itl[1], itl[2]),
        e2e=(median, p90, p99),
    )


def _first_tokens(steady: Quantiles, passed: Passed, alone: tuple[float, float]) -> Quantiles:
    """Every wait of the run met by chance: a request waits for the longer of the two."""
    prompt_s, standing_s = alone
    parts = [(i + 0.5) / _STRATA for i in range(_STRATA - 1)] + [1 - p / _STRATA for p in (0.75, 0.45, 0.15)]
    chance = [max(0.0, _at(steady, part) - prompt_s - standing_s) for part in parts]
    shares = [1.0] * (_STRATA - 1) + [1 / 3] * 3
    stride = max(1, len(passed.waits) // _MOST)
    taken = passed.waits[stride // 2 :: stride]
    waits = [(wait, (1 - passed.settled) / len(taken)) for wait in taken] + [(standing_s, passed.settled)]
    met = [
        (prompt_s + max(wait, own), weight * share)
        for wait, weight in waits
        for own, share in zip(chance, shares, strict=True)
    ]
    return _quantiles(met)


def _at(quantiles: Quantiles, share: float) -> float:
    """The value below which a share lies: straight in the normal score between p50, p90 and p99, and beyond."""
    score = _score(share)
    if score <= 0:
        return quantiles[0]
    low, high = (0, 1) if score < _SCORES[1] else (1, 2)
    slope = (quantiles[high] - quantiles[low]) / (_SCORES[high] - _SCORES[low])
    return quantiles[low] + slope * (score - _SCORES[low])


def _score(share: float) -> float:
    """Standard normal quantile (Abramowitz and Stegun 26.2.23, within 4.5e-4)."""
    tail = min(share, 1 - share)
    t = math.sqrt(-2 * math.log(tail))
    size = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (
        1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3
    )
    return size if share > 0.5 else -size


def _quantiles(weighted: list[tuple[float, float]]) -> Quantiles:
    weighted = sorted(weighted)
    whole, seen, out = sum(w for _, w in weighted), 0.0, []
    shares = list(_SHARES)
    for value, weight in weighted:
        seen += weight
        while shares and seen >= shares[0] * whole * (1 - 1e-9):
            out.append(value)
            shares.pop(0)
    out += [weighted[-1][0]] * len(shares)
    return out[0], out[1], out[2]
