"""Calls that are not generation: passed whole to any engine that is up. And the proxy's own health answers."""

from __future__ import annotations

from disaggc.proxy.exchange import Exchange
from disaggc.proxy.failures import LegError, RefusedError, Stage
from disaggc.proxy.legs import RETRYABLE, Message, send
from disaggc.proxy.requests import engine_head, forwarded

PASSED = {
    b"/v1/models": b"GET", b"/version": b"GET", b"/tokenize": b"POST", b"/detokenize": b"POST",
    b"/v1/embeddings": b"POST", b"/pooling": b"POST", b"/classify": b"POST", b"/score": b"POST", b"/v1/score": b"POST",
    b"/rerank": b"POST", b"/v1/rerank": b"POST", b"/v2/rerank": b"POST", b"/v2/embed": b"POST",
    b"/v1/chat/completions/batch": b"POST", b"/v1/messages/count_tokens": b"POST",
}  # fmt: skip
"""What may be passed on; everything else an engine offers (scaling, sleeping, adapters, profiles) stays private."""


class AnyCall(Exchange):
    """One call for any engine."""

    __slots__ = ()

    async def work(self) -> None:
        """Ask one engine; another one once more if that fails."""
        request = self.request
        tried: set[str] = set()
        body = request.body
        while True:
            fleet, now = self.service.fleet, self.clock()
            among = fleet.servers + fleet.prefills
            replica = fleet.choose([r for r in among if r.address not in tried], fleet.for_any, now=now)
            if replica is None:
                raise RefusedError(503 if not tried else 502, "no engine is available", retry_after=2)
            tried.add(replica.address)
            self.entry.decode = replica.address
            size = len(body) if request.method == b"POST" else None
            head = engine_head(
                request.method, request.path, replica.authority,
                lines=forwarded(request.headers), request=self.upstream_id, size=size,
            )  # fmt: skip
            replica.circuit.sent()
            try:
                limits = self.service.table.timeouts
                _, future = await send(
                    replica, Message(head, [body], stream=False), self.connections, connect_s=limits.connect_s
                )
                answer = await self.within(Stage.FIRST_BYTE, limits.first_byte_s, future)
            except LegError as error:
                if error.fresh:
                    replica.failed(self.clock())
                else:
                    replica.circuit.withdrawn()
                    tried.discard(replica.address)
                if len(tried) > self.service.table.retries:
                    raise RefusedError(error.status, f"the engine failed: {error.reason}") from None
                continue
            except BaseException:
                replica.circuit.withdrawn()
                raise
            if answer.head.status in RETRYABLE and len(tried) <= self.service.table.retries:
                replica.failed(self.clock())
                continue
            replica.circuit.succeeded()
            status = answer.head.status
            self.respond(502 if status == 500 else status, answer.head.value(b"content-type"), answer.body)
            return


class Health(Exchange):
    """`/health`: the process serves. `/ready`: and it has engines for both legs."""

    __slots__ = ()

    async def work(self) -> None:
        """Answer at once."""
        service, now = self.service, self.clock()
        fleet = service.fleet
        ready = any(r.available(now) for r in fleet.servers)
        if fleet.disaggregated and service.table.on_prefill_failure != "decode-locally":
            ready = ready and any(r.available(now) for r in fleet.prefills)
        if self.request.path == b"/ready" and (service.draining or not ready):
            raise RefusedError(
                503, "draining" if service.draining else "no engine is available for every leg"
            )
        self.respond(200, b"text/plain", b"")
