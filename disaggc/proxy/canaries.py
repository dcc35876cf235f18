"""Canaries in turn over all pairs, and which pairs are set apart: no KV goes over them until canaries are good again.

Decides and tells the control process; the request itself stands in canary. Knows no clients.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from disaggc.ir.plan import Role
from disaggc.proxy.canary import OK, Canary, Finding, Verdict
from disaggc.proxy.engine_session import engine_session
from disaggc.routing.limits import Health
from disaggc.routing.roles import seats
from disaggc.routing.table import Dialect, ReplicaEntry, ReplicaState

if TYPE_CHECKING:
    from disaggc.proxy.control import Control

_LOG = logging.getLogger(__name__)
Pair = tuple[str, str]
"""Addresses of a prefill and a decode replica."""


@dataclass(slots=True)
class PairStanding:
    """What canaries said of one pair."""

    bad: int = 0
    good: int = 0
    apart: bool = False
    last: Finding = OK

    def note(self, found: Finding, health: Health) -> None:
        """One more canary: apart after `eject_after` bad ones in a row, back after `readmit_after` good ones."""
        self.last = found
        match found.verdict:
            case Verdict.GOOD:
                self.good, self.bad = self.good + 1, 0
            case Verdict.BAD:
                self.good, self.bad = 0, self.bad + 1
            case Verdict.UNKNOWN:
                return
        if self.bad >= health.eject_after:
            self.apart = True
        elif self.good >= health.readmit_after:
            self.apart = False

    def settled(self) -> bool:
        """Whether another canary right now would not change what is done with the pair."""
        if self.last.verdict is Verdict.UNKNOWN:
            return True
        return self.bad > 0 if self.apart else self.bad == 0


class Canaries:
    """The watch over the pairs of the table in effect."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._rounds = 0
        self.standings: dict[Pair, PairStanding] = {}
        self.sent: dict[str, int] = dict.fromkeys(Verdict, 0)

    @property
    def apart(self) -> frozenset[Pair]:
        """Pairs over which no KV may go."""
        return frozenset(pair for pair, standing in self.standings.items() if standing.apart)

    @property
    def _urgent(self) -> list[Pair]:
        """Pairs set apart, and those whose last canary said nothing: an engine was busy, or not up yet."""
        return [
            pair
            for pair, standing in self.standings.items()
            if standing.apart or standing.last.verdict is Verdict.UNKNOWN
        ]

    async def run(self) -> None:
        """A round each canary interval; urgent pairs are tried more often."""
        next_round = time.monotonic()
        while True:
            health = self._control.table.health
            due = time.monotonic() >= next_round
            if health.canary_s is not None and self._control.table.dialect is not Dialect.NONE:
                if due:
                    next_round = time.monotonic() + health.canary_s
                if due or self._urgent:
                    await self._round(whole=due)
            elif self.apart:
                self.standings.clear()
                self._control.part(self.apart)
            await asyncio.sleep(max(health.interval_s, min(health.open_s, health.canary_s or health.open_s)))

    async def _round(self, *, whole: bool) -> None:
        """Every replica once (or only what is urgent); a pair found bad brings in the others of its replicas."""
        control = self._control
        table = control.table
        active = [
            s
            for s in seats(table)
            if s.entry.state is ReplicaState.ACTIVE and control.probes.healthy(s.entry.address)
        ]
        prefills = {s.entry.address: s.entry for s in active if s.role is Role.PREFILL}
        decodes = {s.entry.address: s.entry for s in active if s.role is Role.DECODE}
        self._forget()
        todo = deque(self._urgent)
        if whole:
            turn = pairs_in_turn(list(prefills.values()), list(decodes.values()), turn=self._rounds)
            todo += [(p.address, d.address) for p, d in turn]
            self._rounds += 1
        seen: set[Pair] = set()
        async with engine_session(table) as session:
            canary = Canary(session, table)
            while todo:
                pair = todo.popleft()
                if pair in seen or pair[0] not in prefills or pair[1] not in decodes:
                    continue
                seen.add(pair)
                if await self._judge(canary, prefills[pair[0]], decodes[pair[1]]):
                    todo += [
                        (p.address, d.address)
                        for p in prefills.values()
                        for d in decodes.values()
                        if p.cohort == d.cohort and (p.address == pair[0] or d.address == pair[1])
                    ]

    async def _judge(self, canary: Canary, prefill: ReplicaEntry, decode: ReplicaEntry) -> bool:
        """Canaries over one pair until it is clear what to do with it; True when it was set apart just now."""
        health = canary.table.health
        pair = prefill.address, decode.address
        standing = self.standings.setdefault(pair, PairStanding())
        was = standing.apart
        while True:
            found = await canary.over(prefill, decode)
            self.sent[found.verdict] += 1
            standing.note(found, health)
            if found.verdict is not Verdict.GOOD:
                _LOG.warning("canary %s to %s: %s", *pair, found.said)
            if standing.apart is not was or standing.settled():
                break
            await asyncio.sleep(min(1.0, health.interval_s))
        if standing.apart is was:
            return False
        _LOG.warning("%s and %s are %s", *pair, "set apart" if standing.apart else "together again")
        self._control.part(self.apart)
        return standing.apart

    def _forget(self) -> None:
        """Pairs of replicas that the table has no more."""
        known = set(self._control.slots)
        gone = [pair for pair in self.standings if not {*pair} <= known]
        for pair in gone:
            del self.standings[pair]
        if gone:
            self._control.part(self.apart)


def pairs_in_turn(
    prefills: Sequence[ReplicaEntry], decodes: Sequence[ReplicaEntry], *, turn: int = 0
) -> list[tuple[ReplicaEntry, ReplicaEntry]]:
    """Pairs of one cohort such that every replica that has a partner is in at least one; over the turns, all pairs."""
    pairs = []
    for cohort in sorted({entry.cohort for entry in prefills} & {entry.cohort for entry in decodes}):
        firsts = [e for e in prefills if e.cohort == cohort]
        seconds = [e for e in decodes if e.cohort == cohort]
        count = max(len(firsts), len(seconds))
        shifted = itertools.islice(itertools.cycle(seconds), turn % len(seconds), None)
        pairs += list(itertools.islice(zip(itertools.cycle(firsts), shifted, strict=False), count))
    return pairs
