"""Memory of one accelerator of a replica: what weights, buffers and KV take, and how many sequences remain.

First-order predictor with a range for what only a run can tell (activations, graphs, communication buffers). Knows no
layout: the load of the replica arrives as a MemoryDemand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from disaggc import units
from disaggc.catalog.facts import ModelFacts
from disaggc.catalog.sizing import absorbed_bytes_per_rank, state_bytes_per_rank, weight_bytes_per_rank
from disaggc.ir.plan import Role, Shape
from disaggc.perf.estimate import Basis
from disaggc.perf.overhead import overhead_bytes
from disaggc.perf.sizes import batched_tokens, block_size, capture_size, wanted_sequences
from disaggc.perf.work import kv_shares
from disaggc.resolve.model import ClassLoad, NodeGroupFacts, ResolvedService

_STATED = "KV tokens that the calibration file states"
_TAIL_SCORE = 2.33
"""Standard normal quantile of 99 %: the running sequences fit together in 99 of 100 cases."""


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """What one replica must hold.

    rate: requests/s it prefills. handoff_s: from the end of prefill to the end of the transfer (hop, decode queue,
    transfer). lease_s: how long KV stays when decode never fetches it. seen_tokens: KV tokens such an engine was
    seen to have, instead of what is computed.
    """

    classes: tuple[ClassLoad, ...]
    rate: float = 0.0
    handoff_s: float = 0.0
    lease_s: float = 30.0
    seen_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """The replica fits.

    Bytes are of one accelerator; an engine is one data-parallel rank with its tensor group and has its own KV pool;
    `ranks` engines make the replica.

    kv_bytes_per_token: on one accelerator at this traffic's lengths (a sliding window or recurrent state makes it
    depend on them). kv_tokens_low/high, sequences, leased tokens and max_num_seqs are per engine. leased_tokens: KV
    waiting to be fetched in the steady state; lease_tail_tokens: the same when decode fetches nothing for a lease.
    capture_size: largest batch captured as a graph. basis: whether the KV tokens are computed or were
    read in an engine's log. certain: a sequence of max_model_len fits at the cautious end too.
    """

    total_bytes: float
    usable_bytes: float
    weights_bytes: float
    overhead_low_bytes: float
    overhead_high_bytes: float
    kv_bytes_per_token: float
    kv_tokens_low: int
    kv_tokens_high: int
    sequences: int
    leased_tokens: int
    lease_tail_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    capture_size: int
    ranks: int
    certain: bool
    basis: Basis = Basis.PRIOR

    @property
    def replica_kv_tokens_low(self) -> int:
        """KV tokens of the whole replica, cautious end."""
        return self.kv_tokens_low * self.ranks

    @property
    def replica_sequences(self) -> int:
        """Sequences the whole replica runs at once."""
        return self.max_num_seqs * self.ranks


@dataclass(frozen=True, slots=True)
class NoFit:
    """The replica does not fit: `need` takes need_bytes where only have_bytes are left on one accelerator."""

    need: str
    need_bytes: float
    have_bytes: float
    where: str

    def __str__(self) -> str:
        """`weights 83.9 GiB exceed 73.6 GiB usable on h100-sxm at tp8`."""
        need, have = units.format_bytes(self.need_bytes), units.format_bytes(self.have_bytes)
        return f"{self.need} {need} exceed {have} {self.where}"


def fit(
    service: ResolvedService, group: NodeGroupFacts, role: Role, *, shape: Shape, demand: MemoryDemand
) -> Fit | NoFit:
    """Sizes pinned for one replica, or the first need that is larger than what is left."""
    model, accelerator = service.model, group.accelerator
    usable = accelerator.memory_bytes * service.utilisation
    weights = weight_bytes_per_rank(model, shape) + absorbed_bytes_per_rank(model, shape)
    if weights > usable:
        return NoFit("weights", weights, usable, f"usable on {accelerator.id} at {shape}")
    batched, left = batched_tokens(service, group, role), usable - weights
    length = _typical_length(demand.classes, role)
    per_token = bytes_per_sequence(service, shape, length) / length
    leased, tail = _leased(demand, shape.dp) if role is Role.PREFILL else (0.0, 0.0)
    seen = _seen(demand, per_token, (left, accelerator.memory_bytes - weights), at=f"on {accelerator.id}")
    if isinstance(seen, NoFit):
        return seen
    overhead = _overhead(model, shape, batched=batched, not_kv=seen and left - seen * per_token)

    def held(sequences: int) -> int:
        tokens = max(0.0, left - overhead(sequences)[1]) / per_token
        return _sequences(demand.classes, role, tokens - min(leased, tokens / 2))

    wanted = min(wanted_sequences(service, group, role), held(1))
    sequences = held(wanted)
    low, high = overhead(min(wanted, sequences))
    longest = bytes_per_sequence(service, shape, float(service.max_model_len))
    if low > left or longest > left - low:
        where = f"on {accelerator.id} at {shape}{_by(seen)}"
        return _too_tight(service, left, low, longest=longest, at=where)
    seqs = min(wanted, sequences)
    return Fit(
        total_bytes=accelerator.memory_bytes,
        usable_bytes=usable,
        weights_bytes=weights,
        overhead_low_bytes=low,
        overhead_high_bytes=high,
        kv_bytes_per_token=per_token,
        kv_tokens_low=seen or int(max(0.0, left - high) / per_token),
        kv_tokens_high=seen or int((left - low) / per_token),
        sequences=sequences,
        leased_tokens=math.ceil(leased),
        lease_tail_tokens=math.ceil(tail),
        max_num_batched_tokens=max(batched, seqs),
        max_num_seqs=seqs,
        block_size=block_size(service, group, role),
        capture_size=capture_size(service, group, role, seqs=seqs),
        ranks=shape.dp,
        certain=longest <= left - high,
        basis=Basis.PRIOR if demand.seen_tokens is None else Basis.MEASURED,
    )


def _seen(
    demand: MemoryDemand, per_token: float, room: tuple[float, float], *, at: str
) -> int | NoFit | None:
    """KV tokens that an engine of this kind was seen to have; room: what the facts leave, and what there is at all.

    One that found a little more than the facts leave has what they leave: no buffers below zero.
    """
    tokens = demand.seen_tokens
    if tokens is not None and tokens * per_token > room[1]:
        return NoFit(f"the {tokens:,} {_STATED}", tokens * per_token, room[1], f"beside the weights {at}")
    return None if tokens is None else min(tokens, int(room[0] / per_token))


def _by(seen: int | None) -> str:
    return "" if seen is None else f" by the {seen:,} {_STATED}"


def _overhead(
    model: ModelFacts, shape: Shape, *, batched: int, not_kv: float | None
) -> Callable[[int], tuple[float, float]]:
    """(low, high) of an engine's buffers by the sequences they are sized for; what is not KV where that was seen."""

    def taken(sequences: int) -> tuple[float, float]:
        if not_kv is not None:
            return not_kv, not_kv
        return overhead_bytes(model, shape, batched=batched, sequences=sequences)

    return taken


def _too_tight(service: ResolvedService, left: float, low: float, *, longest: float, at: str) -> NoFit:
    """What does not fit beside the weights, taking the buffers at their low end."""
    if low > left:
        return NoFit("activations and buffers", low, left, f"left beside the weights {at}")
    need = f"the KV of one sequence of {service.max_model_len} tokens"
    return NoFit(need, longest, left - low, f"left beside weights and buffers {at}")


def bytes_per_sequence(service: ResolvedService, shape: Shape, tokens: float) -> float:
    """KV and recurrent state of one sequence on one accelerator; sliding layers stop growing at their window."""
    model = service.model
    full, sliding = kv_shares(model, shape)
    window = min(tokens, model.sliding_window) if model.sliding_window else tokens
    kv = (
        service.kv_bytes_per_token_full * full * tokens
        + service.kv_bytes_per_token_sliding * sliding * window
    )
    return kv + state_bytes_per_rank(model, shape)


def _weights(classes: tuple[ClassLoad, ...]) -> list[float]:
    """Share of each class among running sequences: rate or cap, times output length."""
    each = [(c.rate if c.rate is not None else float(c.concurrency or 1)) * c.osl.mean for c in classes]
    return [share / sum(each) for share in each]


def _length(load: ClassLoad, role: Role) -> tuple[float, float]:
    """(mean, variance) of the tokens one running sequence holds.

    A prompt in prefill holds its whole length. In decode the running sequences are spread evenly over their outputs,
    and long outputs run longer, so they weigh more.
    """
    mean, variance = load.isl.mean, (load.isl.mean * load.isl.cv) ** 2
    if role is Role.PREFILL:
        return mean, variance
    osl, square = load.osl.mean, load.osl.cv**2
    progress = osl * (1 + square) / 2
    return mean + progress, variance + max(0.0, osl * osl * (1 + 3 * square) / 3 - progress * progress)


def _typical_length(classes: tuple[ClassLoad, ...], role: Role) -> float:
    return sum(w * _length(c, role)[0] for w, c in zip(_weights(classes), classes, strict=True))


def _sequences(classes: tuple[ClassLoad, ...], role: Role, tokens: float) -> int:
    """Most sequences whose tokens fit together in 99 of 100 cases of the steady state; at least one.

    The engine preempts in the hundredth case and when all sequences start at once.
    """
    mean = _typical_length(classes, role)
    square = sum(
        w * (v + m * m)
        for w, (m, v) in zip(_weights(classes), (_length(c, role) for c in classes), strict=True)
    )
    deviation = _TAIL_SCORE * math.sqrt(max(0.0, square - mean * mean))
    root = (-deviation + math.sqrt(deviation * deviation + 4 * mean * tokens)) / (2 * mean)
    return max(1, int(root * root))


def _leased(demand: MemoryDemand, ranks: int) -> tuple[float, float]:
    """(steady, bad times) tokens of finished prompts that one engine keeps for decode to fetch."""
    asked = [c.rate if c.rate is not None else (c.concurrency or 1) / c.osl.mean for c in demand.classes]
    length = sum(x * c.isl.mean for x, c in zip(asked, demand.classes, strict=True)) / sum(asked)
    rate = demand.rate / ranks * length
    return rate * demand.handoff_s, rate * demand.lease_s
