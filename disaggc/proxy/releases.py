"""Releasing KV that prefill keeps for a decode that will not come.

The primitive: a decode engine of the cohort gets the parameters with a model it does not know. It refuses in its
handler, computes nothing, and tells prefill to free the blocks. Where even that fails, the lease ends it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from disaggc.proxy.board import Total
from disaggc.proxy.failures import LegError
from disaggc.proxy.legs import Message, handed_over, send
from disaggc.proxy.requests import engine_head, forwarded
from disaggc.proxy.upstream import Connection

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.service import Service

RELEASE_S = 5.0
SALVAGE_S = 1.0
_TARGET = b"/v1/chat/completions"


class Releases:
    """Releases under way; they outlive the request they clean up after."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, service: Service, params: bytes, cohort: str, *, headers: Mapping[bytes, bytes]) -> None:
        """Release in the background."""
        self._run(_release(service, params, cohort, lines=forwarded(headers)))

    def salvage(
        self, service: Service, connection: Connection, prefill: Replica, *, headers: Mapping[bytes, bytes]
    ) -> None:
        """Hang up on a prefill that is no longer wanted; if it had finished, release what it keeps."""
        # Hung up before this returns: whoever cleans up after the request must find the connection taken over.
        answer = connection.hang_up()
        self._run(_salvage(service, connection, answer, prefill=prefill, lines=forwarded(headers)))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def finish(self) -> None:
        """Wait for those under way."""
        if self._running:
            await asyncio.wait(self._running, timeout=RELEASE_S)


async def _salvage(
    service: Service,
    connection: Connection,
    future: asyncio.Future[Answer],
    *,
    prefill: Replica,
    lines: bytes,
) -> None:
    try:
        async with asyncio.timeout(SALVAGE_S):
            answer = await future
        params, _ = handed_over(answer, service.table.dialect)
    except (LegError, TimeoutError):
        return
    finally:
        connection.close()
    await _release(service, params, prefill.entry.cohort, lines=lines)


async def _release(service: Service, params: bytes, cohort: str, *, lines: bytes) -> None:
    cells = service.tally.cells
    fleet = service.fleet
    among = [r for r in fleet.decodes if r.entry.cohort == cohort]
    body = (
        b'{"model":"disaggc-release","messages":[{"role":"user","content":"."}],"max_tokens":1,'
        + params
        + b"}"
    )
    for _ in range(2):
        # A replica whose circuit is open is better than none: refusing costs it nothing.
        replica = fleet.choose(among, fleet.for_decode, now=monotonic()) or (among[0] if among else None)
        if replica is None:
            break
        head = engine_head(
            b"POST",
            _TARGET,
            replica.authority,
            lines=lines,
            request=f"release-{secrets.token_hex(12)}",
            size=len(body),
        )
        owner: list[Connection] = []
        try:
            async with asyncio.timeout(RELEASE_S):
                _, future = await send(
                    replica, Message(head, [body], stream=False), owner, connect_s=RELEASE_S
                )
                answer = await future
        except (LegError, TimeoutError):
            among = [r for r in among if r is not replica]
            continue
        finally:
            for connection in owner:
                connection.abandon(owner)
        if answer.head.status == 404:
            cells[Total.RELEASES] += 1
            return
    cells[Total.RELEASES_FAILED] += 1
    cells[Total.LEASES_LEFT] += 1
