"""What perf says of a subject: every quantity of a point at the three corners or at one set of constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from disaggc.perf.calibration.updated import loosened
from disaggc.perf.case import Case
from disaggc.perf.case import Point as Evaluated
from disaggc.perf.demand import demand_of
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.memory import NoFit
from disaggc.perf.stations import Sized
from tests.fidelity.subjects import Subject

Scores = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Predicted:
    """A quantity with its printed 80 % range."""

    value: float
    low: float
    high: float


def case_of(subject: Subject, pools: tuple[Sized, ...], *, steady: bool = False) -> Case:
    """The layout under its traffic: the run as long as the table says, or the steady state."""
    requests = subject.point.requests
    ends = None if steady or math.isnan(requests) else requests
    return Case(subject.models, subject.service, pools, classes=demand_of(subject.service), requests=ends)


class NoRoomError(Exception):
    """The layout of a point does not fit as the model counts memory."""


class Asked:
    """A subject ready to be evaluated at any constants."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        sized = []
        for pool in subject.layout.pools:
            fit = subject.models.memory(subject.service, pool.group, pool.role, shape=pool.shape)
            if isinstance(fit, NoFit):
                raise NoRoomError(f"does not fit: {fit.need}")
            sized.append(Sized(pool, fit))
        self.case = case_of(subject, tuple(sized))
        self._engines = [
            subject.models.engine(subject.service, p.pool.group, p.pool.shape) for p in self.case.pools
        ]

    def at(self, scores: Scores) -> dict[str, float]:
        """All quantities with each constant at its score.

        A run that ends costs a hundred times a steady state: what its end does is taken as at the priors.
        """
        times = [StepTimes(e.work, loosened(e.constants).drawn(dict(scores))) for e in self._engines]
        if self.case.requests is None:
            return self._figures(self.case._evaluated(times))
        seen = self._figures(self._steady._evaluated(times))
        return {q: value * self._ends[q] for q, value in seen.items()}

    @cached_property
    def _steady(self) -> Case:
        return case_of(self.subject, self.case.pools, steady=True)

    @cached_property
    def _ends(self) -> dict[str, float]:
        """What its end does to each quantity of the run."""
        ends, goes_on = self._figures(self.case.at_corner(1)), self._figures(self._steady.at_corner(1))
        return {q: ends[q] / goes_on[q] if goes_on[q] > 0 else 1.0 for q in ends}

    def predicted(self) -> dict[str, Predicted]:
        """All quantities with the range that a plan prints."""
        worst, likely, best = (self._figures(self.case.at_corner(i)) for i in range(3))
        return {
            name: Predicted(value, min(worst[name], value, best[name]), max(worst[name], value, best[name]))
            for name, value in likely.items()
        }

    def at_priors(self) -> dict[str, float]:
        """All quantities at the likely constants, as they are before any fit."""
        return self._figures(self.case.at_corner(1))

    def _quantities(self, times: list[StepTimes]) -> dict[str, float]:
        return self._figures(self.case._evaluated(times))

    def _figures(self, seen: Evaluated) -> dict[str, float]:
        one, gpus, tpot = seen.classes[0], self._gpus(), seen.classes[0].token_s
        return {
            "ttft_p50": one.ttft[0], "ttft_p99": one.ttft[2],
            "ttft_mean": one.ttft[0],
            "tpot": tpot, "itl_p50": one.itl[0], "itl_p99": one.itl[2],
            "e2e_p50": one.e2e[0], "e2e_mean": one.e2e[0],
            "rps": one.rate, "output_tps": seen.output_tok_per_s, "total_tps": seen.total_tok_per_s,
            "output_tps_gpu": seen.output_tok_per_s / gpus, "total_tps_gpu": seen.total_tok_per_s / gpus,
            "user_tps": 1 / tpot if tpot > 0 else math.inf,
        }  # fmt: skip

    def _gpus(self) -> float:
        return float(sum(p.pool.replicas * p.pool.shape.accelerators for p in self.case.pools))
