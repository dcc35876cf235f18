"""What one workload class asks of an engine, as plain numbers, between the resolved spec and the steady state."""

from __future__ import annotations

import math
from dataclasses import dataclass

from disaggc.resolve.model import ClassLoad, Lengths, ResolvedService


@dataclass(frozen=True, slots=True)
class ClassDemand:
    """Per request of one class. rate, cap: infinity where absent. uncached: share of the prompt that is computed.

    context: mean tokens of context of a running sequence (longer outputs run longer, so they weigh more).
    steps_per_token: decode steps one output token costs (below 1 with speculative decoding).
    """

    name: str
    rate: float
    cap: float
    isl: Lengths
    osl: Lengths
    uncached: float
    context: float
    steps_per_token: float
    variability: float

    def computed(self, isl: float) -> float:
        """Prompt tokens that prefill computes for a prompt of `isl` tokens."""
        return isl * self.uncached

    def squares(self, isl: float) -> float:
        """Attention work of that prompt in squared tokens: cached tokens are read, not computed."""
        cached = isl * (1 - self.uncached)
        return isl * isl - cached * cached


def demand_of(service: ResolvedService) -> tuple[ClassDemand, ...]:
    """One ClassDemand for each class, in the service's order."""
    per_token = steps_per_token(service)
    return tuple(_of_class(load, per_token) for load in service.classes)


def steps_per_token(service: ResolvedService) -> float:
    """Decode steps for one output token: 1, or the inverse of the tokens a speculative step yields.

    With acceptance a and n drafts a step yields 1 + a + ... + a^n tokens.
    """
    given = service.given.speculative
    if given is None:
        return 1.0
    a, n = given.acceptance, given.tokens
    return 1 / (n + 1) if a >= 1 else (1 - a) / (1 - a ** (n + 1))


def _of_class(load: ClassLoad, per_token: float) -> ClassDemand:
    isl, osl = load.isl, load.osl
    return ClassDemand(
        name=load.name,
        rate=math.inf if load.rate is None else load.rate,
        cap=math.inf if load.concurrency is None else float(load.concurrency),
        isl=isl,
        osl=osl,
        uncached=1 - load.prefix_hit,
        context=isl.mean + osl.mean * (1 + osl.cv * osl.cv) / 2,
        steps_per_token=per_token,
        variability=(load.arrival_cv**2 + isl.cv**2) / 2,
    )


def nominal_weights(classes: tuple[ClassDemand, ...]) -> tuple[float, ...]:
    """Share of each class in the requests before anything is solved: by rate, or by cap over output length."""
    each = [c.rate if math.isfinite(c.rate) else c.cap / c.osl.mean for c in classes]
    return tuple(value / sum(each) for value in each)
