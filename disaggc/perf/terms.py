"""A prediction taken apart: what its medians are the sum of, and what each station could serve.

Above `predict`, at the likely constants: the addends are those of the very numbers that a plan states. Knows no text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from disaggc.perf.case import Case
from disaggc.perf.demand import ClassDemand
from disaggc.perf.estimate import Term
from disaggc.perf.latency import Latencies
from disaggc.perf.layout import LayoutPrediction
from disaggc.perf.prefill import PromptTimes
from disaggc.perf.stations import Stations
from disaggc.perf.steady import Steady
from disaggc.perf.transfer import KvPath


@dataclass(frozen=True, slots=True)
class ClassTerms:
    """One class, seconds. ttft, itl, e2e: addends of the medians.

    ttft_tail, itl_tail: what the 99th percentile has beyond the median; the parts of the first add as squares.
    """

    name: str
    ttft: tuple[Term, ...]
    itl: tuple[Term, ...]
    e2e: tuple[Term, ...]
    ttft_tail: tuple[Term, ...]
    itl_tail: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Station:
    """Something that may limit the service. requests_per_s: its capacity, served alone. load: share of it asked."""

    name: str
    requests_per_s: float
    load: float


@dataclass(frozen=True, slots=True)
class PoolOutput:
    """One decode or colocated pool: replicas x batch sequences, a token each in a step. tok_per_s: output tokens."""

    replicas: int
    batch: float
    step_s: float
    tok_per_s: float


@dataclass(frozen=True, slots=True)
class Terms:
    """All of one service. stalled: share of decode steps that carry or take up a prompt. output: by decode pool."""

    classes: tuple[ClassTerms, ...]
    served_per_s: float
    offered_per_s: float | None
    stations: tuple[Station, ...]
    output: tuple[PoolOutput, ...]
    stalled: float


def terms_of(prediction: LayoutPrediction) -> Terms | None:
    """None where the layout cannot run."""
    case = prediction.case
    if case is None:
        return None
    return _Apart(case).terms()


class _Apart:
    """One layout at its likely constants."""

    def __init__(self, case: Case) -> None:
        stations, steady = case.opened([case.times(sized)[1] for sized in case.pools])
        self.stations: Stations = stations
        self.steady: Steady = steady
        self.latencies = Latencies(stations, steady)
        self.step = self.latencies.step()

    def terms(self) -> Terms:
        served = sum(self.steady.rates)
        rates = [c.rate for c in self.stations.classes]
        offered = sum(rates)
        return Terms(
            classes=tuple(self._class(i, c) for i, c in enumerate(self.stations.classes)),
            served_per_s=served,
            offered_per_s=offered if offered < float("inf") else None,
            stations=tuple(self._stations(served)),
            output=tuple(self._output()),
            stalled=self.step.stalled,
        )

    def _class(self, i: int, c: ClassDemand) -> ClassTerms:
        first = self.latencies.first_token(i)
        names = ("longer prompts", "longer waits", "phase of the step")
        beyond = zip(names, first.beyond()[2], strict=True)
        each = c.steps_per_token
        plain, stall = self.step.plain, self.step.stall
        tail = (("fuller batch", plain[2] - plain[0]), ("prompt in the step", stall[2] - stall[0]))
        return ClassTerms(
            name=c.name,
            ttft=_seen(self._first_token(i, c)),
            itl=_seen(self._token(each)),
            e2e=_seen(self._whole(i, c)),
            ttft_tail=_seen(Term(name, part) for name, part in beyond),
            itl_tail=_seen(Term(name, part * each) for name, part in tail),
        )

    def _first_token(self, i: int, c: ClassDemand) -> Iterator[Term]:
        first, steady = self.latencies.first_token(i), self.steady
        legs = 1 if self.stations.colocated else 2
        yield Term("front end", legs * self.stations.values.hop_s)
        if first.bunched > first.prefill_wait[0] + first.network_wait[0]:
            yield Term("prompts that come with it", first.bunched)
        else:
            yield Term("queue for prefill", first.prefill_wait[0])
            yield Term("queue for the network", first.network_wait[0])
        yield from self._prompt(c)
        yield Term("wait for a decode slot", steady.decode_wait_s[i])
        yield Term("next step", first.boundary[0])
        yield Term("first decode step", first.joined - steady.decode_wait_s[i] - first.boundary[0])

    def _prompt(self, c: ClassDemand) -> Iterator[Term]:
        """Prompt and transfer, mean over the pools as requests are spread over them."""
        stations = self.stations
        found: dict[str, float] = {}
        if stations.colocated:
            for i, (share, pool) in enumerate(zip(stations.shares, stations.decode, strict=True)):
                step = stations.decode_s(i, self.steady.batches[i])
                _add(
                    found,
                    share,
                    pool.prompts.mixed_terms(c.computed(c.isl.p50), c.squares(c.isl.p50), step_s=step),
                )
        else:
            for share, pool, path in zip(stations.shares, stations.prefill, stations.paths, strict=True):
                _add(found, share, self._fetched(c, pool.prompts, path))
        return (Term(name, value) for name, value in found.items())

    def _fetched(self, c: ClassDemand, prompts: PromptTimes, path: KvPath) -> tuple[Term, ...]:
        tokens, squares = c.computed(c.isl.p50), c.squares(c.isl.p50)
        values = self.stations.values
        _, moved = prompts.fetched_s(tokens, squares, path, values=values)
        setup = path.latency_s + values.kv_setup_s
        return (
            *prompts.alone_terms(tokens, squares),
            Term("KV transfer: setup", setup),
            Term("KV transfer: bytes", moved - setup),
        )

    def _token(self, each: float) -> Iterator[Term]:
        """The median time between two tokens."""
        stations, i = self.stations, self.step.pool
        times, kappa = stations.decode[i].times, stations.values.kappa if stations.colocated else 1.0
        for term in times.decode_terms(self.steady.batches[i], stations.context):
            yield Term(term.name, term.value * kappa * each)
        yield Term("prompt in the step", self.step.stall[0] * each)

    def _whole(self, i: int, c: ClassDemand) -> Iterator[Term]:
        """The median of a whole answer: first token, then the mean step, in which prompts of others stand."""
        tokens = max(0.0, c.osl.p50 - 1) * c.steps_per_token
        steps = [self.stations.decode_s(k, batch) for k, batch in enumerate(self.steady.batches)]
        weights = [
            p.sized.pool.replicas * b for p, b in zip(self.stations.decode, self.steady.batches, strict=True)
        ]
        whole = sum(weights)
        plain = (
            sum(w * s for w, s in zip(weights, steps, strict=True)) / whole
            if whole > 0
            else self.steady.step_s
        )
        yield Term("first token", self.latencies.first_token(i).median)
        yield Term("decode steps", tokens * plain)
        yield Term("prompts in between", tokens * (self.steady.step_s - plain))

    def _stations(self, served: float) -> Iterator[Station]:
        """What each could serve of this mix. A full decode pool runs all the sequences it may."""
        steady, stations = self.steady, self.stations
        asked = sum(
            x * c.osl.mean * c.steps_per_token for x, c in zip(steady.rates, stations.classes, strict=True)
        )
        if served <= 0 or asked <= 0:
            return
        if steady.rho > 0:
            yield Station("prompts" if stations.colocated else "prefill", served / steady.rho, steady.rho)
        if steady.kv_rho > 0:
            yield Station("network", served / steady.kv_rho, steady.kv_rho)
        most = sum(
            p.sized.pool.replicas
            * p.sized.limit
            / (stations.decode_s(i, p.sized.limit) + p.sized.limit * stations.stalls[i])
            for i, p in enumerate(stations.decode)
        )
        yield Station("colocated" if stations.colocated else "decode", served * most / asked, asked / most)

    def _output(self) -> Iterator[PoolOutput]:
        steady = self.steady
        tokens = sum(x * c.osl.mean for x, c in zip(steady.rates, self.stations.classes, strict=True))
        flows = [
            p.sized.pool.replicas * batch / step if step > 0 else 0.0
            for p, batch, step in zip(self.stations.decode, steady.batches, steady.steps, strict=True)
        ]
        whole = sum(flows)
        for p, batch, step, flow in zip(
            self.stations.decode, steady.batches, steady.steps, flows, strict=True
        ):
            yield PoolOutput(p.sized.pool.replicas, batch, step, tokens * flow / whole if whole > 0 else 0.0)


def _add(found: dict[str, float], share: float, terms: tuple[Term, ...]) -> None:
    for term in terms:
        found[term.name] = found.get(term.name, 0.0) + share * term.value


def _seen(terms: Iterator[Term]) -> tuple[Term, ...]:
    """Those that are there: a term of nothing is left out."""
    return tuple(term for term in terms if abs(term.value) > 1e-12)
