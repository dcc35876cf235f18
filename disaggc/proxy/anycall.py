"""Calls that are not generation: passed whole to any engine that is up. And the proxy's own answers."""

from __future__ import annotations

import re
from time import monotonic
from typing import TYPE_CHECKING, Final

from disaggc.proxy.board import Total
from disaggc.proxy.call import Call, Terms
from disaggc.proxy.events import KV_KEY, scrub
from disaggc.proxy.exchange import Exchange
from disaggc.proxy.failures import LegError, RefusedError
from disaggc.proxy.members import encode, members_of, without_identity
from disaggc.proxy.requests import Request, engine_request, engine_target
from disaggc.proxy.verdicts import RETRYABLE
from disaggc.proxy.waiting import RETRY_AFTER_S

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.fleet import Fleet, Replica
    from disaggc.proxy.front import Front
    from disaggc.proxy.service import Service

PASSED: Final = {
    b"/v1/models": b"GET", b"/version": b"GET", b"/tokenize": b"POST", b"/detokenize": b"POST",
    b"/v1/embeddings": b"POST", b"/pooling": b"POST", b"/classify": b"POST", b"/score": b"POST", b"/v1/score": b"POST",
    b"/rerank": b"POST", b"/v1/rerank": b"POST", b"/v2/rerank": b"POST", b"/v2/embed": b"POST",
    b"/v1/messages/count_tokens": b"POST",
}  # fmt: skip
"""What may be passed on; everything else an engine offers (scaling, sleeping, adapters, profiles) stays private."""
_STORED: Final = re.compile(rb"/v1/responses/[A-Za-z0-9_\-]{1,128}(/cancel)?")


def is_stored(path: bytes, method: bytes) -> bool:
    """Whether this asks for a response that an engine keeps, or cancels it."""
    match = _STORED.fullmatch(path)
    return match is not None and method == (b"POST" if match[1] else b"GET")


class AnyCall(Exchange):
    """One call for any engine; another one once more if that fails."""

    __slots__ = ("_body", "_target", "_tried")

    def __init__(self, service: Service, front: Front, request: Request) -> None:
        super().__init__(service, front, request)
        self._tried: set[str] = set()
        self._target = request.path + b"?" + request.query if request.query else request.path
        self._body: bytes | None = None

    def begin(self) -> None:
        """Read the body, and ask an engine."""
        if self.request.method == b"POST":
            self._body = self._checked()
        self._ask_another()

    def _checked(self) -> bytes:
        """The client's body less what only the proxy may say: engines read KV parameters in any of their calls."""
        body = self.request.body
        found = members_of(body)
        said = without_identity(found)
        if len(said) < len(found):
            self.service.tally.cells[Total.PARAMS_STRIPPED] += 1
        return body if said is found else encode(said)

    def _ask_another(self) -> None:
        """Ask an engine that was not asked yet."""
        now, fleet, request = monotonic(), self.service.fleet, self.request
        among = [r for r in self._engines(fleet) if r.address not in self._tried]
        replica = fleet.choose(fleet.soundest(among, now), fleet.for_any, now=now)
        if replica is None:
            raise RefusedError(503 if not self._tried else 502, "no engine is available", retry_after=2)
        self._tried.add(replica.address)
        self.entry.decode = replica.address
        message = engine_request(
            engine_target(request.method, self._target, replica.authority), self._body,
            lines=self.lines, request=self.upstream_id,
        )  # fmt: skip
        bounds = self.service.bounds
        terms = Terms(bounds.first_byte_s, bounds.connect_s, again=True)
        call = Call(self, replica, terms)
        self.calls = [call]
        replica.circuit.sent()
        call.start(message, now)

    def _engines(self, fleet: Fleet) -> tuple[Replica, ...]:
        return fleet.servers + fleet.prefills

    @property
    def _may_ask_another(self) -> bool:
        return len(self._tried) <= self.service.table.retries

    def on_answer(self, call: Call, answer: Answer) -> None:
        """Pass it on, or ask another engine."""
        replica, status = call.replica, answer.head.status
        if status in RETRYABLE or not (status == 200 or 400 <= status < 500):
            if self._may_ask_another:
                replica.failed(monotonic())
                self._ask_another()
                return
            replica.circuit.withdrawn()
            if status < 400:
                raise RefusedError(502, f"the engine failed: status {status}")
        else:
            replica.circuit.succeeded()
        body, count = (answer.body, 0) if KV_KEY not in answer.body else _scrubbed(answer.body)
        self.service.tally.cells[Total.PARAMS_SCRUBBED] += count
        self.respond(502 if status == 500 else status, answer.head.content_type, body)
        self.conclude()

    def on_failure(self, call: Call, error: LegError) -> None:
        """Ask another engine."""
        if error.blame:
            call.replica.failed(monotonic())
        else:
            call.replica.circuit.withdrawn()
        if not error.blame or not self._may_ask_another:
            after = RETRY_AFTER_S if error.status == 503 else None
            raise RefusedError(error.status, f"the engine failed: {error.reason}", retry_after=after)
        self._ask_another()

    def clean(self, now: float) -> None:
        """A client that left says nothing about the engine."""
        for call in self.calls:
            if call.open:
                call.replica.circuit.withdrawn()
        super().clean(now)


class StoredResponse(AnyCall):
    """A response that the one engine keeps which made it, as for `background` and `previous_response_id`."""

    __slots__ = ()

    def begin(self) -> None:
        """Ask that engine."""
        if len(self.service.fleet.servers) > 1:
            raise RefusedError(400, "stored responses need one engine, this service has several")
        self._ask_another()

    def _engines(self, fleet: Fleet) -> tuple[Replica, ...]:
        return fleet.servers


def _scrubbed(body: bytes) -> tuple[bytes, int]:
    try:
        return scrub(body)
    except ValueError:
        raise RefusedError(502, "the engine failed: bad-answer") from None


class Health(Exchange):
    """`/health`: the process serves. `/ready`: and it has engines for both legs."""

    __slots__ = ()

    def begin(self) -> None:
        """Answer at once."""
        service, now = self.service, self.started
        fleet = service.fleet
        ready = any(r.there and r.circuit.allows(now) for r in fleet.servers)
        if fleet.disaggregated and service.table.on_prefill_failure != "decode-locally":
            ready = ready and any(r.there and r.circuit.allows(now) for r in fleet.prefills)
        if self.request.path == b"/ready" and (service.draining or not ready):
            raise RefusedError(
                503, "draining" if service.draining else "no engine is available for every leg"
            )
        self.respond(200, b"text/plain", b"")
        self.conclude()


class Unknown(Exchange):
    """A path or method that is not served."""

    __slots__ = ("_known",)

    def __init__(self, service: Service, front: Front, request: Request, *, known: bool) -> None:
        super().__init__(service, front, request)
        self._known = known

    def begin(self) -> None:
        """Say so."""
        if self._known:
            raise RefusedError(405, "the method is not allowed here")
        raise RefusedError(404, "there is no such path here")
