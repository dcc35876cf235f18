"""Releasing KV that prefill keeps for a decode that will not come.

The primitive: a decode engine of the cohort gets the parameters with a model it does not know. It refuses in its
handler, computes nothing, and tells prefill to free the blocks. Where even that fails, the lease ends it.
"""

from __future__ import annotations

import asyncio
import secrets
from time import monotonic
from typing import TYPE_CHECKING, Final

from disaggc.proxy.board import Total
from disaggc.proxy.call import Call, Terms
from disaggc.proxy.failures import LegError
from disaggc.proxy.requests import engine_request, engine_target
from disaggc.proxy.verdicts import handed_over

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.service import Service
    from disaggc.proxy.upstream import Connection

RELEASE_S: Final = 5.0
SALVAGE_S: Final = 1.0
TRIES: Final = 2
_TERMS: Final = Terms(RELEASE_S, RELEASE_S)
_PATH: Final = b"/v1/chat/completions"


class Releases:
    """Releases under way; they outlive the request they clean up after."""

    def __init__(self) -> None:
        self.running: set[Release | Salvage] = set()

    def start(self, service: Service, params: bytes, cohort: str, *, lines: bytes) -> None:
        """Release in the background; `lines` are the client's header lines that engines see."""
        release = Release(service, params, cohort, lines=lines)
        self.running.add(release)
        release.start()

    def salvage(self, service: Service, connection: Connection, prefill: Replica, *, lines: bytes) -> None:
        """Hang up on a prefill that is no longer wanted; if it had finished, release what it keeps."""
        self.running.add(Salvage(service, connection, prefill, lines=lines))

    def tick(self, now: float) -> None:
        """Called by the sweep."""
        for one in tuple(self.running):
            if now > one.deadline:
                one.expire()

    async def finish(self) -> None:
        """Wait for those under way."""
        deadline = monotonic() + RELEASE_S
        while self.running and monotonic() < deadline:
            await asyncio.sleep(0.02)
            self.tick(monotonic())


class Salvage:
    """A connection on which a prefill's answer may still come; owns it until then, or until its time is over."""

    def __init__(self, service: Service, connection: Connection, prefill: Replica, *, lines: bytes) -> None:
        self._service = service
        self._connection = connection
        self._cohort = prefill.cohort
        self._lines = lines
        self.deadline = monotonic() + SALVAGE_S
        connection.hang_up(self)

    def answered(self, answer: Answer) -> None:
        """It had finished."""
        self._service.releases.running.discard(self)
        if not answer.ended:
            answer.connection.close()
        handed = handed_over(answer.body, self._service.table.dialect)
        if not isinstance(handed, LegError):
            self._service.releases.start(self._service, bytes(handed.params), self._cohort, lines=self._lines)

    def failed(self, error: LegError) -> None:
        """It had not: the engine has aborted it."""
        del error
        self._service.releases.running.discard(self)

    def expire(self) -> None:
        """Nothing came."""
        self._service.releases.running.discard(self)
        self._connection.close()


class Release:
    """One release: up to TRIES decode engines are asked."""

    def __init__(self, service: Service, params: bytes, cohort: str, *, lines: bytes) -> None:
        self._service = service
        self._lines = lines
        self._body = (
            b'{"model":"disaggc-release","messages":[{"role":"user","content":"."}],"max_tokens":1,'
            b'"kv_transfer_params":%b}' % params
        )
        self._among = [r for r in service.fleet.decodes if r.cohort == cohort]
        self._left = TRIES
        self.last = 0.0
        self._call: Call | None = None

    @property
    def deadline(self) -> float:
        """Of the try under way."""
        return self._call.deadline if self._call is not None else 0.0

    def start(self) -> None:
        """Ask the next engine, or leave it to the lease."""
        now, fleet = monotonic(), self._service.fleet
        # A replica whose circuit is open is better than none: refusing costs it nothing.
        replica = fleet.choose(self._among, fleet.for_decode, now=now) or next(iter(self._among), None)
        if self._left == 0 or replica is None:
            self._service.tally.cells[Total.RELEASES_FAILED] += 1
            self._service.tally.cells[Total.LEASES_LEFT] += 1
            self._service.releases.running.discard(self)
            return
        self._left -= 1
        message = engine_request(
            engine_target(b"POST", _PATH, replica.authority), self._body, lines=self._lines,
            request=f"release-{secrets.token_hex(12)}",
        )  # fmt: skip
        self.last = now + RELEASE_S
        self._call = Call(self, replica, _TERMS)
        self._call.start(message, now)

    def took(self, call: Call, answer: Answer) -> None:
        """404 is what a release is answered."""
        del call
        if answer.head.status == 404:
            self._service.tally.cells[Total.RELEASES] += 1
            self._service.releases.running.discard(self)
        else:
            self.start()

    def missed(self, call: Call, error: LegError) -> None:
        """Another engine, if there is one."""
        del error
        self._among = [r for r in self._among if r is not call.replica]
        self.start()

    def expire(self) -> None:
        """The try under way has had its time."""
        if self._call is not None:
            self._call.expire()
