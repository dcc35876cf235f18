"""The replicas of the routing table in force, with their connections, circuits and load, and who may take a request.

One fleet per generation; replicas that stay keep their connections and what is known of them. Knows no HTTP bodies.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from disaggc.ir.plan import Role
from disaggc.proxy.board import Board, PerReplica, Shared, Total, replica_cell
from disaggc.proxy.engine_tls import engine_tls
from disaggc.proxy.outbox import Outbox
from disaggc.proxy.pool import ConnectionPool
from disaggc.proxy.requests import engine_target
from disaggc.proxy.tally import Tally
from disaggc.routing.choice import Chooser
from disaggc.routing.circuit import Circuit
from disaggc.routing.roles import seats
from disaggc.routing.table import Policy, ReplicaEntry, ReplicaState, RoutingTable

SCRAPED_WEIGHT: Final = 256.0
"""Tokens a request that other proxies sent counts for, when only the engine's own gauges tell of it."""


class Replica:
    """One engine as this worker sees it."""

    __slots__ = (
        "_board", "_cells", "_first", "_health", "_others", "_targets", "_waiting", "active", "address", "authority",
        "circuit", "cohort", "entry", "kv_tokens", "max_seqs", "peers", "pool", "role", "slot", "weight",
    )  # fmt: skip

    def __init__(
        self, entry: ReplicaEntry, *, slot: int, pool: ConnectionPool, circuit: Circuit, view: WorkerView
    ) -> None:
        self.adopt(entry)
        self.role = Role.DECODE
        self.peers: tuple[Replica, ...] = ()  # all that do what it does, itself among them
        self.slot = slot
        self.pool = pool
        self.circuit = circuit
        self.authority = b"%b:%d" % (entry.host.encode("ascii"), entry.port)
        self._targets: dict[bytes, bytes] = {}
        self._cells = view.tally.cells
        self._first = replica_cell(slot, 0)
        self._board = view.board
        self._health = slot * Shared.SIZE + Shared.HEALTHY
        self._waiting = slot * Shared.SIZE + Shared.WAITING
        self._others = view.board.workers > 1
        pool.on_connect = lambda: self.count(PerReplica.CONNECTS)

    def adopt(self, entry: ReplicaEntry) -> None:
        """Take on what a table says of it; the hot path reads plain attributes."""
        self.entry = entry
        self.address = entry.address
        self.weight = entry.weight
        self.cohort = entry.cohort
        self.max_seqs = entry.max_seqs
        self.kv_tokens = entry.kv_tokens
        self.active = entry.state is ReplicaState.ACTIVE

    def begin(self) -> None:
        """Count from nought: another replica may have had the slot."""
        for cell in range(self._first, self._first + PerReplica.SIZE):
            self._cells[cell] = 0.0

    def retire(self) -> None:
        """No table has it any more: what still runs there must not count in its slot, which is another's next."""
        self.pool.retire()
        self.peers = ()
        self._cells, self._first, self._others = memoryview(array("d", [0.0] * Total.SIZE)), 0, False

    @property
    def work(self) -> float:
        """Outstanding tokens over all workers, and what the engine itself says is waiting."""
        return self.tokens + self._board.shared[self._waiting] * SCRAPED_WEIGHT

    @property
    def requests(self) -> float:
        """Requests in flight over all workers."""
        if self._others:
            return self._board.total(self._first + PerReplica.REQUESTS_OPEN)
        return self._cells[self._first + PerReplica.REQUESTS_OPEN]

    @property
    def tokens(self) -> float:
        """Tokens in flight over all workers."""
        if self._others:
            return self._board.total(self._first + PerReplica.WORK)
        return self._cells[self._first + PerReplica.WORK]

    def target(self, path: bytes) -> bytes:
        """Request line and Host of a POST to it; made once for each of the few paths."""
        target = self._targets.get(path)
        if target is None:
            target = self._targets[path] = engine_target(b"POST", path, self.authority)
        return target

    def count_total(self, cell: int) -> None:
        """Add one to a counter of the worker."""
        self._cells[cell] += 1.0

    def count(self, cell: int) -> None:
        """Add one to a counter of this replica."""
        self._cells[self._first + cell] += 1.0

    def take(self, tokens: float) -> None:
        """A leg starts."""
        cells, first = self._cells, self._first
        cells[first + PerReplica.REQUESTS] += 1.0
        cells[first + PerReplica.REQUESTS_OPEN] += 1.0
        cells[first + PerReplica.WORK] += tokens

    def release(self, tokens: float) -> None:
        """A leg ended."""
        cells, first = self._cells, self._first
        cells[first + PerReplica.REQUESTS_OPEN] -= 1.0
        cells[first + PerReplica.WORK] -= tokens

    def asked(self, cell: int) -> None:
        """A leg is on its way; `cell` counts its kind."""
        self._cells[self._first + cell] += 1.0
        self.circuit.sent()

    def failed(self, now: float) -> None:
        """A leg failed by the engine's fault."""
        self.count(PerReplica.FAILURES)
        if self.circuit.failed(now):
            self.count(PerReplica.CIRCUIT_OPENED)

    @property
    def there(self) -> bool:
        """Whether table and probes have nothing against it."""
        return self.active and self._board.shared[self._health] >= 0

    def available(self, now: float) -> bool:
        """Whether it may get a new request: active, healthy, circuit closed; or nobody else may and nobody tries it."""
        if not self.active or self._board.shared[self._health] < 0:
            return False
        return self.circuit.allows(now) or not (
            self.circuit.probing or any(r.there and r.circuit.allows(now) for r in self.peers)
        )


@dataclass(frozen=True)
class WorkerView:
    """What a worker has that all its fleets share."""

    board: Board
    tally: Tally
    outbox: Outbox = field(default_factory=Outbox)


class Fleet:
    """All replicas of one generation."""

    def __init__(
        self, table: RoutingTable, slots: Mapping[str, int], view: WorkerView, *, earlier: Fleet | None = None
    ) -> None:
        self.table = table
        self.replicas: dict[str, Replica] = {}
        several = table.proxies > 1
        self.for_prefill = Chooser(table.policy, random.random, several=several)
        self.for_decode = Chooser(table.policy, random.random, several=several)
        self.for_any = Chooser(Policy.POWER_OF_TWO, random.random)
        tls = engine_tls(table)
        known = earlier.replicas if earlier else {}
        grouped: dict[Role, list[Replica]] = {role: [] for role in Role}
        seated = [(seat, slots[seat.entry.address]) for seat in seats(table)]
        # Nothing above has changed what an earlier generation uses: a table that cannot be used leaves it whole.
        for seat, slot in seated:
            replica = _carried(known.get(seat.entry.address), seat.entry, table) or Replica(
                seat.entry,
                slot=slot,
                pool=ConnectionPool(
                    seat.entry.host,
                    seat.entry.port,
                    tls=tls,
                    idle_s=table.timeouts.idle_upstream_s,
                    outbox=view.outbox,
                ),
                circuit=Circuit(table.health.eject_after, table.health.open_s),
                view=view,
            )
            replica.role = seat.role
            if earlier is not None and known.get(seat.entry.address) is not replica:
                replica.begin()
            self.replicas[seat.entry.address] = replica
            grouped[seat.role].append(replica)
        self.prefills = tuple(grouped[Role.PREFILL])
        self.decodes = tuple(grouped[Role.DECODE])
        self.servers = self.decodes + tuple(grouped[Role.COLOCATED])
        """Replicas that can answer a generation request: decode and colocated ones."""
        for replica in (*self.prefills, *self.servers):
            replica.peers = self.prefills if replica.role is Role.PREFILL else self.servers
        self._cohorts = {r.cohort: [p for p in self.prefills if p.cohort == r.cohort] for r in self.decodes}
        self.part(earlier.apart if earlier else frozenset())
        for address, old in known.items():
            if self.replicas.get(address) is not old:
                old.retire()

    def choose(
        self, among: Iterable[Replica], chooser: Chooser, *, now: float, prefix: bytes = b"",
        fits: Callable[[Replica], bool] | None = None,
    ) -> Replica | None:  # fmt: skip
        """The policy's choice among those available (and fitting)."""
        candidates = [r for r in among if r.available(now) and (fits is None or fits(r))]
        return chooser.choose(candidates, prefix)

    def soundest(self, among: Iterable[Replica], now: float) -> list[Replica]:
        """Those available with the fewest failures in a row: after everybody was tried, or where any will do."""
        up = [r for r in among if r.available(now)]
        least = min((r.circuit.failures for r in up), default=0)
        return [r for r in up if r.circuit.failures == least]

    def part(self, apart: frozenset[tuple[str, str]]) -> None:
        """Pairs (prefill, decode) over which no KV may go; where no pair is left, decode prefills alone."""
        self.apart = apart
        self.disaggregated = any(not apart or self.prefills_for(decode) for decode in self.decodes) and bool(
            self.prefills
        )

    def prefills_for(self, decode: Replica) -> list[Replica]:
        """Prefill replicas that may hand KV to this one: of equal cohort, and not set apart."""
        found, apart = self._cohorts.get(decode.cohort, []), self.apart
        return [r for r in found if (r.address, decode.address) not in apart] if apart else found

    def any_engine(self, now: float) -> Replica | None:
        """Any available engine, for calls that are not generation."""
        return self.choose(self.soundest(self.replicas.values(), now), self.for_any, now=now)

    def close_idle(self, now: float) -> None:
        """Close connections the engines would soon close."""
        for replica in self.replicas.values():
            replica.pool.close_idle(now)


def _carried(old: Replica | None, entry: ReplicaEntry, table: RoutingTable) -> Replica | None:
    """The same engine in a new generation keeps its connections and its circuit."""
    if old is None or (old.entry.host, old.entry.port) != (entry.host, entry.port):
        return None
    old.adopt(entry)
    old.circuit.threshold, old.circuit.rest_s = table.health.eject_after, table.health.open_s
    old.pool.idle_s = table.timeouts.idle_upstream_s
    return old
