"""What clients offer: streams of requests with lengths and times, as `vllm bench serve` makes them or as recorded.

Seeded: one generator in, the same requests out. Knows no engine.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from disaggc.perf.events.lengths import Even, Fixed, LengthDraw, Shaped
from disaggc.resolve.model import Bound, ClassLoad, Lengths, ResolvedService
from disaggc.traffic.arrivals import gamma_arrivals

_ENOUGH = 1000
"""Requests of a run that names none, and per-class share of it."""
BLOCK_TOKENS = 512
"""Prompt tokens that one block id of a trace stands for, as in Mooncake's traces."""
_WAVES = 10
"""How often a closed loop turns over in such a run."""


@dataclass(frozen=True, slots=True)
class Offered:
    """One request of a client: seconds from the start of the run, tokens; cached: share of the prompt not computed.

    blocks: ids of the prompt's leading blocks, equal where content is; then caches decide what is computed.
    """

    at_s: float
    isl: int
    osl: int
    cached: float = 0.0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """A replica ends at `at_s` with all it holds and is back `down_s` later. pool, replica: positions in the layout."""

    at_s: float
    pool: int
    replica: int
    down_s: float


@dataclass(frozen=True, slots=True)
class Ramp:
    """Request rate from `start` to `end` over the run, by request number (`--ramp-up-strategy`)."""

    start: float
    end: float
    strategy: Literal["linear", "exponential"] = "linear"

    def rate(self, share: float) -> float:
        """Requests/s when this share of the requests was sent."""
        if self.strategy == "linear":
            return self.start + (self.end - self.start) * share
        return float(self.start * (self.end / self.start) ** share)


@dataclass(frozen=True, slots=True)
class Stream:
    """The requests of one class. rate: requests/s (infinite: all at once); cap: most in flight, the client holds back.

    cv: coefficient of variation between arrivals, burstiness is 1/cv^2. recorded: a trace, which stands for rate, cv
    and lengths. exact_span: arrivals are stretched to take requests/rate seconds, as `vllm bench serve` does.
    """

    name: str
    requests: int
    isl: LengthDraw = field(default_factory=lambda: Fixed(1))
    osl: LengthDraw = field(default_factory=lambda: Fixed(1))
    rate: float = math.inf
    cap: float = math.inf
    cv: float = 1.0
    prefix_hit: float = 0.0
    priority: int = 0
    bounds: tuple[Bound, ...] = ()
    ramp: Ramp | None = None
    exact_span: bool = False
    recorded: tuple[Offered, ...] = ()

    def offered(self, rng: random.Random) -> tuple[Offered, ...]:
        """Every request in the order of its time."""
        if self.recorded:
            return self.recorded
        times = self._times(rng)
        return tuple(Offered(at, self.isl.draw(rng), self.osl.draw(rng), self.prefix_hit) for at in times)

    def mean_osl(self) -> float:
        """Output tokens of a mean request."""
        if self.recorded:
            return sum(o.osl for o in self.recorded) / len(self.recorded)
        return self.osl.mean

    def _times(self, rng: random.Random) -> Sequence[float]:
        if self.ramp is not None:
            return list(self._ramped(self.ramp, rng))
        if math.isinf(self.rate):
            return [0.0] * self.requests
        arrivals = gamma_arrivals(self.rate, self.cv, rng)
        times = [next(arrivals) for _ in range(self.requests)]
        if self.exact_span and times:
            stretch = self.requests / self.rate / times[-1]
            times = [t * stretch for t in times]
        return times

    def _ramped(self, ramp: Ramp, rng: random.Random) -> Iterator[float]:
        now = 0.0
        for number in range(self.requests):
            now += next(gamma_arrivals(ramp.rate(number / self.requests), self.cv, rng))
            yield now


@dataclass(frozen=True, slots=True)
class Load:
    """All streams of a run, and which replicas fail in it."""

    streams: tuple[Stream, ...]
    failures: tuple[Failure, ...] = ()

    @classmethod
    def bench(
        cls,
        isl: int,
        osl: int,
        *,
        concurrency: float = math.inf,
        rate: float = math.inf,
        requests: int | None = None,
        burstiness: float = 1.0,
        jitter: float = 1.0,
        ramp: Ramp | None = None,
    ) -> Load:
        """One run of `vllm bench serve`; lengths uniform in [jitter, 1] x nominal.

        requests None: enough for a steady state, ten waves of a closed loop or a thousand.
        """
        lengths = (Fixed(n) if jitter >= 1 else Even(max(1, round(n * jitter)), n) for n in (isl, osl))
        drawn_isl, drawn_osl = lengths
        stream = Stream(
            "bench", _enough(concurrency) if requests is None else requests, drawn_isl, drawn_osl,
            rate=rate, cap=concurrency, cv=burstiness**-0.5, ramp=ramp, exact_span=ramp is None,
        )  # fmt: skip
        return cls((stream,))

    @classmethod
    def trace(cls, offered: Sequence[Offered], *, concurrency: float = math.inf, name: str = "trace") -> Load:
        """A recorded trace, replayed from its first request on."""
        ordered = sorted(offered, key=lambda o: o.at_s)
        first = ordered[0].at_s if ordered else 0.0
        recorded = tuple(replace(o, at_s=o.at_s - first) for o in ordered)
        return cls((Stream(name, len(recorded), cap=concurrency, recorded=recorded),))

    @classmethod
    def of_service(cls, service: ResolvedService, requests: int | None = None) -> Load:
        """The spec's own classes, in proportion to what each asks for."""
        caps = sum(c.concurrency or 0 for c in service.classes)
        total = _enough(caps) if requests is None else requests
        weights = [_pace(c) for c in service.classes]
        share = [weight / sum(weights) for weight in weights]
        return cls(
            tuple(
                Stream(
                    c.name, max(1, round(total * part)), _draw(c.isl), _draw(c.osl),
                    rate=math.inf if c.rate is None else c.rate,
                    cap=math.inf if c.concurrency is None else c.concurrency,
                    cv=c.arrival_cv, prefix_hit=c.prefix_hit, priority=c.priority, bounds=c.bounds,
                )
                for c, part in zip(service.classes, share, strict=True)
            )
        )  # fmt: skip

    @property
    def requests(self) -> int:
        """How many in all."""
        return sum(stream.requests for stream in self.streams)

    @property
    def mean_osl(self) -> float:
        """Output tokens of a mean request."""
        if not self.requests:
            return 0.0
        return sum(s.requests * s.mean_osl() for s in self.streams if s.requests) / self.requests


def _enough(concurrency: float) -> int:
    return max(_ENOUGH, int(_WAVES * concurrency)) if math.isfinite(concurrency) else _ENOUGH


def _pace(load: ClassLoad) -> float:
    """Requests/s of a class before anything is simulated, up to a common factor: by rate, or by cap over length."""
    return load.rate if load.rate is not None else (load.concurrency or 1) / load.osl.mean


def _draw(lengths: Lengths) -> LengthDraw:
    return Fixed(max(1, round(lengths.mean))) if lengths.cv == 0 else Shaped.of(lengths)
