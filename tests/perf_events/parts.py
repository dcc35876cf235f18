"""Engines with step times given by a formula, so that runs can be held against closed forms."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from disaggc.perf.events.calendar import Calendar
from disaggc.perf.events.decode_engine import DecodeEngine
from disaggc.perf.events.flight import Flight, Loss
from disaggc.perf.events.load import Offered
from disaggc.perf.events.prefill_engine import PrefillEngine
from disaggc.perf.events.sizes import Sizes
from disaggc.perf.events.tally import Histogram


class Formula:
    """Step times: decode by a function of (batch, context), prompts by constants."""

    def __init__(
        self,
        decode: Callable[[float, float], float] = lambda _b, _c: 0.01,
        *,
        token_s: float = 0.0,
        square_s: float = 0.0,
        fixed_s: float = 0.0,
        mixed_s: float = 0.0,
        window: int = 0,
    ) -> None:
        self.decode = decode
        self.prefill_token_s, self.prefill_square_s, self.prefill_fixed_s = token_s, square_s, fixed_s
        self.weight_read_s = 0.0
        self.work = SimpleNamespace(sliding_window=window, pp=1, ranks=1)
        self.values = SimpleNamespace(mixed_s=mixed_s)


@dataclass
class Desk:
    """Owner of one engine: KV arrives at once, everything that happens is written down."""

    calendar: Calendar
    finished_at: dict[Flight, float] = field(default_factory=dict)
    prefilled_at: dict[Flight, float] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)

    def finished(self, flight: Flight, now: float) -> None:
        assert flight not in self.finished_at
        self.finished_at[flight] = flight.end_s = now

    def prefilled(self, flight: Flight, now: float) -> None:
        assert flight not in self.prefilled_at
        self.prefilled_at[flight] = now
        if flight.source is not None:
            flight.source.release(flight, now)

    def lost(self, flight: Flight, now: float, loss: Loss) -> None:
        flight.end_s = now
        self.losses.append(loss)

    def fetch(self, flight: Flight, engine: DecodeEngine, now: float) -> None:
        self.calendar.enter(now, lambda at, f: engine.arrived(f, at), flight)


def flight(isl: int = 100, osl: int = 10, cached: float = 0.0) -> Flight:
    return Flight(0, Offered(0.0, isl, osl, cached))


def decode_engine(
    times: Formula, *, seqs: int = 1 << 20, kv_tokens: float = 1e12, budget: float = 8192, ranks: int = 1,
    per_step: float = 1.0, calendar: Calendar | None = None, desk: Desk | None = None,
) -> tuple[Calendar, Desk, DecodeEngine]:  # fmt: skip
    calendar = calendar or Calendar()
    desk = desk or Desk(calendar)
    sizes = Sizes(seqs, kv_tokens, budget, ranks, per_step, 1.0)
    return calendar, desk, DecodeEngine(times, sizes, calendar, owner=desk, itl=[Histogram()])  # type: ignore[arg-type]


def prefill_engine(
    times: Formula, *, budget: float, kv_tokens: float = 1e12, lease_s: float = 30.0
) -> tuple[Calendar, Desk, PrefillEngine]:
    calendar = Calendar()
    desk = Desk(calendar)
    engine = PrefillEngine(times, calendar, desk, budget=budget, kv_tokens=kv_tokens, lease_s=lease_s)  # type: ignore[arg-type]
    return calendar, desk, engine


def rng_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - reproducible draws


def poisson(rate: float, count: int, seed: int = 7) -> list[float]:
    rng, now, times = rng_of(seed), 0.0, []
    for _ in range(count):
        now += rng.expovariate(rate)
        times.append(now)
    return times


def exponential_lengths(mean: float, count: int, seed: int = 8) -> list[int]:
    rng = rng_of(seed)
    return [max(1, round(rng.expovariate(1 / mean))) for _ in range(count)]


def run(calendar: Calendar) -> float:
    return calendar.run(lambda _next: True)
