"""The running parts of one simulation joined: clients, proxy, engines, network. Carries what one tells the other.

Knows how a request goes through the parts; how each works is theirs.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from disaggc.ir.plan import Role
from disaggc.perf.case import Case
from disaggc.perf.constants import Corner
from disaggc.perf.demand import demand_of, steps_per_token
from disaggc.perf.engine_model import StepTimes
from disaggc.perf.events.calendar import Calendar
from disaggc.perf.events.client import callers
from disaggc.perf.events.decode_engine import DecodeEngine
from disaggc.perf.events.flight import Flight, Loss
from disaggc.perf.events.front import Proxy, Seat
from disaggc.perf.events.load import Failure, Load
from disaggc.perf.events.lockstep import Lockstep
from disaggc.perf.events.network import Inlet, hidden_s, transfer_end
from disaggc.perf.events.prefill_engine import PrefillEngine
from disaggc.perf.events.report import report
from disaggc.perf.events.result import Run
from disaggc.perf.events.setting import Front
from disaggc.perf.events.sizes import Sizes
from disaggc.perf.events.tally import Histogram
from disaggc.perf.events.timeline import Timeline
from disaggc.perf.layout import Layout
from disaggc.perf.memory import Fit
from disaggc.perf.models import Models
from disaggc.perf.stations import Sized
from disaggc.perf.transfer import KvPath
from disaggc.resolve.model import ResolvedService
from disaggc.routing.table import ReplicaEntry

_EVERY = 256
"""Requests between two calls of the progress report."""


class Cluster:
    """One layout with its load, ready to run once."""

    def __init__(
        self, models: Models, service: ResolvedService, pools: tuple[Sized, ...], *, load: Load, seed: int,
        front: Front, corner: Corner,
    ) -> None:  # fmt: skip
        self.pools, self.load, self.seed, self.front = pools, load, seed, front
        self.calendar = Calendar()
        self.itl = [Histogram() for _ in load.streams]
        self.longest = service.max_model_len
        self._per_step = 1 / steps_per_token(service)
        self._service = service.name
        case = Case(models, service, tuple(p for p in pools if p.pool.replicas), classes=demand_of(service))
        at = {"worst": 0, "likely": 1, "best": 2}[corner]
        self.times = [case.times(sized)[at] for sized in pools]
        self._paths = dict(zip((id(p) for p in case.prefill), case.paths, strict=False))
        self._routes: dict[PrefillEngine, tuple[KvPath, StepTimes]] = {}
        self._inlets: dict[DecodeEngine, Inlet] = {}
        self.seats = [self._pool(i) for i in range(len(pools))]
        self.proxy = Proxy(
            front, [seat for pool in self.seats for seat in pool], self.calendar, self,
            random.Random(f"{seed}/proxy"),  # noqa: S311 - a reproducible draw
            self.times[0].values.hop_s, load.mean_osl, [s.priority for s in load.streams],
        )  # fmt: skip
        self.callers = callers(load, seed, self.calendar, send=self._sent)
        self.timeline = Timeline(self.seats, [_kv_tokens(p.fit) * p.engines for p in pools])
        self._over = 0
        self._progress: Callable[[int, int], None] | None = None

    # --- building --------------------------------------------------------------------------------------------------

    def _pool(self, i: int) -> list[Seat]:
        return [self._seat(i, n) for n in range(self.pools[i].pool.replicas)]

    def _seat(self, i: int, number: int) -> Seat:
        sized, times = self.pools[i], self.times[i]
        fit, role = sized.fit, sized.pool.role
        entry = ReplicaEntry(
            address=f"{self._service}/{role.value}-{i}/{number}",
            host="127.0.0.1", port=1, cohort="one",
            kv_tokens=max(1, fit.replica_kv_tokens_low),
            max_seqs=max(1, int(sized.limit)),
        )  # fmt: skip
        if role is not Role.PREFILL:
            return Seat(entry, role, engine=self._decode_engine(sized, times))
        together = Lockstep(self.calendar) if times.work.all2alls else None
        ranks = tuple(
            PrefillEngine(
                times, self.calendar, self, budget=float(fit.max_num_batched_tokens),
                kv_tokens=_kv_tokens(fit), lease_s=self.front.lease_s, group=together,
            )
            for _ in range(fit.ranks)
        )  # fmt: skip
        for rank in ranks:
            if id(sized) in self._paths:
                self._routes[rank] = (self._paths[id(sized)], times)
        return Seat(entry, role, ranks=ranks)

    def _decode_engine(self, sized: Sized, times: StepTimes) -> DecodeEngine:
        fit = sized.fit
        sizes = Sizes(
            seqs=int(sized.limit),
            kv_tokens=_kv_tokens(fit) * fit.ranks,
            budget=float(fit.max_num_batched_tokens),
            ranks=fit.ranks,
            per_step=self._per_step,
            kappa=times.values.kappa if sized.pool.role is Role.COLOCATED else 1.0,
        )
        engine = DecodeEngine(times, sizes, self.calendar, owner=self, itl=self.itl)
        self._inlets[engine] = Inlet([0.0] * fit.ranks)
        return engine

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self, layout: Layout, progress: Callable[[int, int], None] | None) -> Run:
        """Everything until the last request is over."""
        self._progress = progress
        total = self.load.requests
        for caller in self.callers:
            caller.start()

        def watch(next_s: float) -> bool:
            runs = self._over < total  # else what comes, e.g. a failure hours later, is not of this run
            if runs and next_s >= self.timeline.next_s:
                self.timeline.reach(next_s, self.proxy.waiting)
            return runs

        now = self.calendar.run(watch)
        return report(self, layout, now)

    def fail_at(self, failure: Failure) -> None:
        """A replica ends at a time and comes back."""
        self.calendar.enter(failure.at_s, self._down, failure)

    def _sent(self, flight: Flight, now: float) -> None:
        if flight.isl >= self.longest:
            self.refused(flight, now, Loss.TOO_LONG)
            return
        flight.osl = min(flight.osl, self.longest - flight.isl)
        flight.left = float(flight.osl)
        self.proxy.admit(flight, now)

    def _close(self, flight: Flight, now: float) -> None:
        flight.end_s = now
        self._over += 1
        if self._progress is not None and self._over % _EVERY == 0:
            self._progress(self._over, self.load.requests)
        self.proxy.ended(flight, now)
        self.callers[flight.stream].over(flight, now)

    # --- what the parts tell ---------------------------------------------------------------------------------------

    def finished(self, flight: Flight, now: float) -> None:
        """The last token went out."""
        self._close(flight, now)

    def lost(self, flight: Flight, now: float, loss: Loss) -> None:
        """An engine or the proxy gives a request up."""
        flight.loss = loss
        flight.epoch += 1
        if flight.source is not None:
            flight.source.release(flight, now)
        self._close(flight, now)

    def refused(self, flight: Flight, now: float, loss: Loss) -> None:
        """The proxy answers with an error."""
        self.lost(flight, now, loss)

    def prefilled(self, flight: Flight, now: float) -> None:
        """A prompt is computed, its KV waits."""
        flight.prefilled_s = now
        self.proxy.hand_over(flight, now)

    def fetch(self, flight: Flight, engine: DecodeEngine, now: float) -> None:
        """Decode has room: the KV moves."""
        source = flight.source
        if source is None or not source.begin(flight, now):
            self._gone(flight, engine, now)
            return
        path, times = self._routes[source]
        tokens = flight.isl * (1 - flight.cached)
        if flight.blocks:
            tokens -= engine.prefixes.use(flight.blocks, flight.isl)
        end = transfer_end(
            path, times.values, source, inlet=self._inlets[engine], tokens=tokens, now=now,
            hidden_s=hidden_s(flight, now, times.values.hop_s) if self.front.layer_wise else 0.0,
        )  # fmt: skip
        self.calendar.enter(end, self._fetched, (flight, flight.epoch, engine))

    def _fetched(self, now: float, move: tuple[Flight, int, DecodeEngine]) -> None:
        flight, epoch, engine = move
        if epoch != flight.epoch or flight not in engine.fetching:
            return
        if flight.source is None or not flight.source.release(flight, now):
            self._gone(flight, engine, now)
            return
        engine.arrived(flight, now)

    def _gone(self, flight: Flight, engine: DecodeEngine, now: float) -> None:
        """There is no KV to fetch: decode computes the prompt itself, or the proxy tries again."""
        engine.abandoned(flight)
        if self.front.load_failure == "recompute":
            flight.fresh()
            self.calendar.enter(now, self._recompute, (flight, flight.epoch, engine))
        elif not self.proxy.again(flight, now):
            self.lost(flight, now, Loss.LEASE)

    @staticmethod
    def _recompute(now: float, move: tuple[Flight, int, DecodeEngine]) -> None:
        flight, epoch, engine = move
        if epoch == flight.epoch:
            engine.prompt(flight, now)

    # --- failures --------------------------------------------------------------------------------------------------

    def _down(self, now: float, failure: Failure) -> None:
        seat = self.seats[failure.pool][failure.replica]
        if not seat.up:
            return
        seat.up = False
        self.proxy.looked_again()
        held = [flight for rank in seat.ranks for flight in rank.clear()]
        if seat.engine is not None:
            held += seat.engine.clear(now)
        self.calendar.enter(now + failure.down_s, self._back, seat)
        for flight in held:
            self._struck(flight, now)

    def _struck(self, flight: Flight, now: float) -> None:
        """Its replica ended: another try while no byte went out."""
        if flight.first_s > now:
            flight.first_s = -1.0
        if flight.source is not None:
            flight.source.release(flight, now)
            flight.source = None
        if flight.streaming or not self.proxy.again(flight, now):
            self.lost(flight, now, Loss.REPLICA)

    def _back(self, now: float, seat: Seat) -> None:
        seat.up = True
        self.proxy.looked_again()
        self.proxy.pump(now)


def _kv_tokens(fit: Fit) -> float:
    """KV of one engine: the middle of what memory leaves."""
    return (fit.kv_tokens_low + fit.kv_tokens_high) / 2
