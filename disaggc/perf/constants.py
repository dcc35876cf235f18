"""The constants of the performance model for one (model, accelerator, shape), each with its range.

Stand between hardware facts and step times. Priors come from `priors`, a calibration file replaces them; which of the
two is all that is known here, not how a fit was made.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal

from disaggc.perf.estimate import Basis

Corner = Literal["worst", "likely", "best"]

Z90 = 1.2815515594457831
"""Standard normal quantile of 90 %: `low` and `high` are the 10 % and 90 % quantiles."""


@dataclass(frozen=True, slots=True)
class Range:
    """A constant with its 80 % range; low <= mid <= high."""

    low: float
    mid: float
    high: float

    def quantile(self, z: float) -> float:
        """The value at standard normal score z: log-normal on each side of mid, normal where it may be zero or less."""
        edge = self.high if z > 0 else self.low
        if self.mid <= 0 or edge <= 0:
            return self.shifted(z)
        return self.mid * math.exp(abs(z) / Z90 * math.log(edge / self.mid))

    def shifted(self, z: float) -> float:
        """The same, normal on each side of mid: where values may have either sign, mid is no unit to count in."""
        edge = self.high if z > 0 else self.low
        return self.mid + (edge - self.mid) * abs(z) / Z90


def exactly(value: float) -> Range:
    """A constant that is not in doubt."""
    return Range(value, value, value)


@dataclass(frozen=True, slots=True)
class Values:
    """One number for each constant: what a step time is computed from. Seconds, shares of peak, bytes/s."""

    memory_eff: float
    expert_memory_eff: float
    kv_memory_eff: float
    compute_eff: float
    expert_compute_eff: float
    attention_eff: float
    link_eff: float
    kv_eff: float
    host_bytes_per_s: float
    step_s: float
    kernel_s: float
    sequence_s: float
    collective_s: float
    all2all_s: float
    imbalance: float
    prefill_s: float
    prefill_kernel_s: float
    mixed_s: float
    join_s: float
    join_token_s: float
    kv_setup_s: float
    hop_s: float
    kappa: float
    batch_slope: float
    burst: float
    step_miss: float
    prompt_miss: float
    decode_fixed_s: float
    decode_per_sequence_s: float
    decode_per_token_s: float
    prefill_per_token_s: float
    prefill_per_square_s: float
    kv_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Constants:
    """Every constant with low, mid and high.

    memory_eff, expert_memory_eff, kv_memory_eff: share of memory bandwidth that reading dense weights, experts and KV
    reaches. compute_eff, expert_compute_eff: share of peak in dense and in grouped matrix products. attention_eff:
    share of peak in prompt attention. link_eff: share of link speed in collectives and copies. kv_eff: share of NIC
    line rate in KV transfer. host_bytes_per_s: KV transfer inside a node without a fast link.
    step_s: launch and scheduling of one step. kernel_s: one kernel that is too small to fill the device. sequence_s:
    scheduling, sampling and output of one sequence per step. collective_s: latency of one all-reduce. all2all_s:
    latency of one expert dispatch or combine. imbalance: hottest rank over mean in expert parallelism.
    prefill_s: fixed cost of a prompt step. prefill_kernel_s: launching one kernel outside a graph. mixed_s: what a
    prompt chunk adds to a decode step before its first token. join_s, join_token_s: what a decode step takes longer
    when it takes up a fetched prompt, and that per prompt token. kv_setup_s: fixed cost of one KV transfer. hop_s:
    front end, proxy and HTTP per leg. kappa: colocated step over the same step in a decode pool; 1 unless a calibration
    file says otherwise. batch_slope: what the model gets wrong in how a step grows with the batch, as a power of it;
    0 in every prior, in doubt only where two layouts are compared. burst: prompts of a closed loop that come together,
    over the square root of the requests in flight on one engine. step_miss, prompt_miss: factor on every decode step
    and on every prompt time: what a fit left unexplained; 1 in priors, whose ranges hold it already.
    decode_*, prefill_per_*, kv_bytes_per_s: direct fits; None = computed from facts and the shares above.
    carried_from: measured shapes that steps or prompts were carried from, where the basis is that.
    """

    memory_eff: Range
    expert_memory_eff: Range
    kv_memory_eff: Range
    compute_eff: Range
    expert_compute_eff: Range
    attention_eff: Range
    link_eff: Range
    kv_eff: Range
    host_bytes_per_s: Range
    step_s: Range
    kernel_s: Range
    sequence_s: Range
    collective_s: Range
    all2all_s: Range
    imbalance: Range
    prefill_s: Range
    prefill_kernel_s: Range
    mixed_s: Range
    kv_setup_s: Range
    hop_s: Range
    kappa: Range = Range(1.0, 1.0, 1.0)
    batch_slope: Range = Range(0.0, 0.0, 0.0)
    burst: Range = Range(0.0, 0.0, 0.0)
    join_s: Range = Range(0.0, 0.0, 0.0)
    join_token_s: Range = Range(0.0, 0.0, 0.0)
    step_miss: Range = Range(1.0, 1.0, 1.0)
    prompt_miss: Range = Range(1.0, 1.0, 1.0)
    decode_fixed_s: Range | None = None
    decode_per_sequence_s: Range | None = None
    decode_per_token_s: Range | None = None
    prefill_per_token_s: Range | None = None
    prefill_per_square_s: Range | None = None
    kv_bytes_per_s: Range | None = None
    basis: Basis = Basis.PRIOR
    source: str = ""
    carried_from: tuple[str, ...] = ()

    def at(self, corner: Corner) -> Values:
        """All constants together at their hopeful, middle or cautious end."""
        sign = {"worst": -Z90, "likely": 0.0, "best": Z90}[corner]
        scores = {name: sign if name in HIGHER_IS_BETTER else -sign for name in NAMES}
        return self.drawn({**scores, "batch_slope": 0.0})

    def drawn(self, scores: dict[str, float]) -> Values:
        """Each constant at its own standard normal score."""
        return Values(**{name: self._one(name, scores[name]) for name in NAMES})

    def _one(self, name: str, z: float) -> float:
        given: Range | None = getattr(self, name)
        if given is None:
            return math.nan
        return given.shifted(z) if name in SIGNED else given.quantile(z)


def carried_from(found: Iterable[Constants]) -> tuple[str, ...]:
    """The measured shapes that any of these were carried from."""
    return tuple(dict.fromkeys(shape for constants in found for shape in constants.carried_from))


HIGHER_IS_BETTER = frozenset(
    {
        "memory_eff",
        "expert_memory_eff",
        "kv_memory_eff",
        "compute_eff",
        "expert_compute_eff",
        "attention_eff",
        "link_eff",
        "kv_eff",
        "kv_bytes_per_s",
        "host_bytes_per_s",
    }
)
SIGNED = frozenset({"batch_slope"})
"""Constants that may be below zero."""
NAMES: tuple[str, ...] = tuple(field.name for field in fields(Values))


def latin_draws(count: int, seed: int = 1) -> tuple[dict[str, float], ...]:
    """`count` sets of scores, each constant stratified on its own; the same sets on every machine and in every run."""
    source = random.Random(seed)  # noqa: S311 - a fixed design of experiments, not a secret
    columns: dict[str, list[float]] = {}
    scores = [_normal_score((i + 0.5) / count) for i in range(count)]
    for name in NAMES:
        columns[name] = scores.copy()
        source.shuffle(columns[name])
    return tuple({name: columns[name][i] for name in NAMES} for i in range(count))


def _normal_score(share: float) -> float:
    """Standard normal quantile by bisection on erf; `statistics` would cost more to import than this to run."""
    low, high = -6.0, 6.0
    for _ in range(60):
        middle = (low + high) / 2
        if 0.5 * (1 + math.erf(middle / math.sqrt(2))) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2
