"""One request from a client, served: what every kind of request shares, from its first step to its log line.

Driven by callbacks: of the client, of engine calls, of the sweep. Each of them ends within one call, and whatever it
raises ends this request only. Knows no P/D.
"""

from __future__ import annotations

import time
from time import monotonic
from typing import TYPE_CHECKING, Final

from disaggc.proxy.accesslog import in_ms, text
from disaggc.proxy.board import PerClass, Timing, Total
from disaggc.proxy.call import Call
from disaggc.proxy.failures import LegError, RefusedError
from disaggc.proxy.logline import Entry
from disaggc.proxy.members import LARGE
from disaggc.proxy.outbox import FEW
from disaggc.proxy.requests import Request, answer_head, error_body, forwarded, request_id
from disaggc.proxy.service import Service

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.front import Front


class Exchange:
    """A request being served. Ends exactly once, in `conclude`, and owns nothing after."""

    __slots__ = (
        "calls", "entry", "front", "gone", "last", "lines", "over", "position", "replied", "request", "row",
        "service", "started", "times", "untaken", "upstream_id",
    )  # fmt: skip

    def __init__(self, service: Service, front: Front, request: Request) -> None:
        self.service = service
        self.front = front
        self.request = request
        self.started = monotonic()
        self.last = self.started + service.bounds.total_s
        """When its time is over, whatever it does."""
        headers = request.headers
        self.position = service.class_positions.get(headers.get(service.class_header, b""), 0)
        """Of its class among the cells; unknown classes count as the default."""
        self.row = service.tally.row(self.position)
        self.times = service.tally.times[self.position]
        self.upstream_id = request_id(headers.get(b"x-request-id"))
        self.lines = forwarded(headers)
        """The client's header lines that engines see."""
        self.entry = Entry(
            request=self.upstream_id, method=text(request.method), path=text(request.path),
            workload=service.class_names[self.position],
        )  # fmt: skip
        self.calls: list[Call] = []
        """All it made; those that are open are waited for."""
        self.replied = False
        self.over = False
        self.gone = False
        self.untaken = False
        """Over, but a part of its answer waits for a client that takes it slowly: there is no outcome yet."""

    # --- what kinds of requests fill in ---

    generates = False
    """Whether it counts among the requests, times and lengths of its workload class."""

    def begin(self) -> None:
        """The first step."""
        raise NotImplementedError

    def on_answer(self, call: Call, answer: Answer) -> None:
        """An engine answered."""
        raise NotImplementedError

    def on_failure(self, call: Call, error: LegError) -> None:
        """An engine failed."""
        raise NotImplementedError

    def clean(self, now: float) -> None:  # noqa: ARG002 - for those that hold more
        """Give back what it holds."""
        for call in self.calls:
            if call.open:
                call.drop()

    @property
    def tokens_so_far(self) -> int:
        """Of a running stream."""
        return 0

    # --- callbacks ---

    def start(self) -> None:
        """Serve."""
        cells = self.service.tally.cells
        cells[Total.REQUESTS_OPEN] += 1
        self.service.outbox.few = cells[Total.REQUESTS_OPEN] <= FEW
        try:
            self.begin()
        except Exception as exc:  # noqa: BLE001 - see `fall`
            self.fall(exc)

    def took(self, call: Call, answer: Answer) -> None:
        """An engine answered."""
        try:
            self.on_answer(call, answer)
        except Exception as exc:  # noqa: BLE001 - see `fall`
            self.fall(exc)

    def missed(self, call: Call, error: LegError) -> None:
        """An engine failed."""
        try:
            self.on_failure(call, error)
        except Exception as exc:  # noqa: BLE001 - see `fall`
            self.fall(exc)

    def tick(self, now: float) -> None:
        """Called by the sweep, a few times a second."""
        for call in self.calls:
            if call.open and now > call.deadline:
                call.expire()
                return

    def client_left(self) -> None:
        """Stop everything for a client that is gone."""
        self.gone = True
        if self.untaken:
            self.entry.outcome = self.entry.outcome or "client-gone"
            self._settle(monotonic(), keep_alive=False)
            return
        self.entry.outcome = "client-gone"
        self.conclude()

    def client_took(self) -> None:
        """The client has caught up; what waited only for that is settled."""
        if self.untaken:
            self._settle(monotonic(), keep_alive=True)

    def stop(self, refused: RefusedError) -> None:
        """The proxy ends."""
        self.request.keep_alive = False
        self.fall(refused)

    def fall(self, exc: Exception) -> None:
        """A refusal is answered; a bug must not take other requests with it, it is counted and said."""
        if not isinstance(exc, RefusedError):
            self.service.report_bug()
            exc = RefusedError(500, "internal error of the proxy")
        if self.over:
            return
        self.conclude(keep_alive=self._answer_error(exc))

    # --- answering ---

    def _answer_error(self, refused: RefusedError) -> bool:
        """An error answer, where nothing went out yet."""
        entry = self.entry
        entry.status = entry.status or refused.status
        entry.outcome = entry.outcome or ("refused" if refused.status < 500 else "failed")
        if self.replied:
            return False
        retry = b"" if refused.retry_after is None else b"retry-after: %d\r\n" % refused.retry_after
        self.respond(refused.status, b"application/json", error_body(refused, self.request.path), more=retry)
        return True

    def respond(self, status: int, content_type: bytes, body: bytes, *, more: bytes = b"") -> None:
        """A whole answer; `more` are further header lines."""
        self.replied = True
        self.entry.status = status
        lines = b"content-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b" % (
            content_type or b"application/json", len(body), self.upstream_id.encode("ascii"), more,
        )  # fmt: skip
        head = answer_head(status, lines, keep_alive=self.request.keep_alive)
        self.front.write(head if self.request.method == b"HEAD" else head + body)
        if len(body) > LARGE:
            self.service.outbox.flush()  # so that it is known whether the client keeps up

    def conclude(self, *, keep_alive: bool = True) -> None:
        """The end: give back, count, log, and let the client's connection go on."""
        if self.over:
            return
        self.over = True
        now = monotonic()
        self.service.tally.cells[Total.REQUESTS_OPEN] -= 1
        self.clean(now)
        if self.front.stalled and not self.gone:
            self.untaken = True
            self.request.keep_alive &= keep_alive
            self.forget()
            return
        self._settle(now, keep_alive=keep_alive)

    def _settle(self, now: float, *, keep_alive: bool) -> None:
        """Count, log, and let the client's connection go on."""
        self.untaken = False
        service, entry = self.service, self.entry
        total = now - self.started
        entry.time, entry.total_ms = time.time(), in_ms(total)
        if self.generates:
            self._account(total)
        else:
            service.tally.cells[Total.OTHER_REQUESTS] += 1.0
            entry.outcome = entry.outcome or ("ok" if entry.status < 400 else "refused")
        service.log.write(entry)
        if not self.gone:
            self.front.finished(now, keep_alive=keep_alive and self.request.keep_alive)
        self.forget()

    def forget(self) -> None:
        """Let go of what points back here, so that all of it is freed now and not by the collector of cycles."""
        self.calls.clear()

    def _account(self, total: float) -> None:
        """By class."""
        entry, cells, row = self.entry, self.service.tally.cells, self.row
        cells[row + PerClass.REQUESTS] += 1.0
        outcome = entry.outcome
        if outcome == "" and entry.status < 400:
            entry.outcome = "ok"
            cells[row + PerClass.OK] += 1.0
            self.times[Timing.E2E].append(total)
        else:
            entry.outcome = outcome or "refused"
            other = PerClass.CLIENT_ERROR if entry.status < 500 else PerClass.SERVER_ERROR
            cells[row + _OUTCOMES.get(outcome, other)] += 1.0
        if entry.retries:
            cells[row + PerClass.RETRIES] += entry.retries


_OUTCOMES: Final = {
    "client-gone": PerClass.CLIENT_GONE,
    "broken": PerClass.BROKEN_STREAM,
}
