"""Administration and metrics, on a port of their own: loopback, or guarded by a token.

Reads the board and asks the control process; requests of clients never come here.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from aiohttp import web
from aiohttp.typedefs import Middleware

from disaggc.proxy.board import PerReplica, Shared, replica_cell
from disaggc.proxy.exposition import render, render_pairs, render_tables, sketches
from disaggc.proxy.service import class_names, read_secret
from disaggc.routing.roles import seats
from disaggc.routing.table import ReplicaState, RoutingTable, dump_table, load_table
from disaggc.routing.text import TableError
from disaggc.traffic.sketch import BINS, bin_upper

if TYPE_CHECKING:
    from disaggc.proxy.control import Control

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_TABLE = 16 << 20
SHOWN = 8


@contextlib.asynccontextmanager
async def admin_site(control: Control) -> AsyncIterator[None]:
    """Serve administration while the context is open."""
    where = control.table.listen
    token = read_secret(where.admin_token) if where.admin_token else None
    application = web.Application(middlewares=[_guard(token)], client_max_size=MAX_TABLE)
    desk = Desk(control)
    application.add_routes(
        [
            web.get("/metrics", desk.metrics),
            web.get("/health", desk.health),
            web.get("/admin/routing", desk.routing),
            web.put("/admin/routing", desk.put_routing),
            web.get("/admin/pools", desk.pools),
            web.post("/admin/drain", desk.drain),
            web.post("/admin/undrain", desk.undrain),
            web.get("/admin/lengths", desk.lengths),
            web.get("/admin/canaries", desk.canaries),
        ]
    )
    async with _serving(application, where.admin_host, where.admin_port):
        yield


@contextlib.asynccontextmanager
async def metrics_site(control: Control) -> AsyncIterator[None]:
    """Serve metrics alone, where the table gives them an address: nothing there changes anything or needs a token."""
    where = control.table.listen
    if where.metrics_host is None:
        yield
        return
    application = web.Application(client_max_size=1)
    application.add_routes([web.get("/metrics", Desk(control).metrics)])
    async with _serving(application, where.metrics_host, where.metrics_port):
        yield


@contextlib.asynccontextmanager
async def _serving(application: web.Application, host: str, port: int) -> AsyncIterator[None]:
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host.strip("[]"), port).start()
        yield
    finally:
        await runner.cleanup()


def _guard(token: bytes | None) -> Middleware:
    digest = hashlib.sha256(token).digest() if token is not None else None

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.headers.get("Origin") is not None:
            return _error(403, "administration is not for browsers")
        if digest is not None and request.path != "/health":
            given = (
                request.headers.get("Authorization", "")
                .removeprefix("Bearer ")
                .encode("utf-8", "surrogateescape")
            )
            if not hmac.compare_digest(hashlib.sha256(given).digest(), digest):
                return _error(401, "the token is missing or wrong")
        return await handler(request)

    return guard


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)


def _some(addresses: Iterable[str]) -> str:
    listed = sorted(addresses)
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"{', '.join(listed[:SHOWN])}{more}"


class Desk:
    """The handlers."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def metrics(self, _: web.Request) -> web.Response:
        """Prometheus text."""
        control = self._control
        text = render(
            control.board, class_names(control.table), control.slots, generation=control.table.generation
        )
        text += render_pairs(control.canaries.sent, control.canaries.apart)
        text += render_tables(control.file.refusals, rejected=control.file.rejected is not None)
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def health(self, _: web.Request) -> web.Response:
        """200 while every worker runs and has the table in effect."""
        control = self._control
        handles = list(control.handles.values())
        current = [h for h in handles if h.acknowledged == control.table.generation]
        good = len(current) == control.board.workers and not control.draining
        said = {
            "workers": len(current),
            "draining": control.draining,
            "generation": control.table.generation,
            "routing_file_generation": control.file.taken.generation if control.file.taken else None,
            "routing_file_rejected": control.file.rejected,
            "routing_file_sha256": control.file.judged,
        }
        return web.json_response(said, status=200 if good else 503)

    async def routing(self, _: web.Request) -> web.Response:
        """The table in effect."""
        return web.Response(text=dump_table(self._control.table), content_type="application/json")

    async def put_routing(self, request: web.Request) -> web.Response:
        """Put a table in effect; answered once every worker routes by it."""
        try:
            table = load_table(await request.read())
        except TableError as exc:
            return self._refused(400, str(exc))
        return await self._apply(table)

    def _refused(self, status: int, message: str) -> web.Response:
        self._control.file.refusals["admin"] += 1
        return _error(status, message)

    async def _apply(self, table: RoutingTable) -> web.Response:
        control = self._control
        fixed = control.table
        if (table.service, table.listen) != (fixed.service, fixed.listen):
            return self._refused(409, "`service` and `listen` need a restart of the proxy")
        try:
            refusals = await control.apply(table, administered=True)
        except ValueError as exc:
            return self._refused(409, str(exc))
        if refusals:
            return self._refused(503, "; ".join(refusals))
        return web.json_response({"generation": table.generation, "kept": control.file.kept})

    async def pools(self, _: web.Request) -> web.Response:
        """Every replica: role, state, health, load."""
        control = self._control
        board = control.board
        found = []
        for seat in seats(control.table):
            slot = control.slots[seat.entry.address]
            standing = control.probes.standings.get(seat.entry.address)
            found.append(
                {
                    "address": seat.entry.address,
                    "pool": seat.pool,
                    "role": seat.role.value,
                    "cohort": seat.entry.cohort,
                    "state": seat.entry.state.value,
                    "healthy": board.shared_cell(slot, Shared.HEALTHY) >= 0,
                    "reason": standing.reason if standing else "",
                    "requests_in_flight": board.total(replica_cell(slot, PerReplica.REQUESTS_OPEN)),
                    "tokens_in_flight": board.total(replica_cell(slot, PerReplica.WORK)),
                    "engine_waiting": board.shared_cell(slot, Shared.WAITING),
                    "engine_kv_usage": board.shared_cell(slot, Shared.KV_USAGE),
                }
            )
        return web.json_response({"generation": control.table.generation, "replicas": found})

    async def drain(self, request: web.Request) -> web.Response:
        """Give a replica no new requests: `?replica=ADDRESS`."""
        return await self._set_state(request, ReplicaState.DRAINING)

    async def undrain(self, request: web.Request) -> web.Response:
        """Give it requests again."""
        return await self._set_state(request, ReplicaState.ACTIVE)

    async def _set_state(self, request: web.Request, state: ReplicaState) -> web.Response:
        address = request.query.get("replica", "")
        table = self._control.table
        if address not in self._control.slots:
            asked = f"no replica has the address `{address}`" if address else "say which: `?replica=ADDRESS`"
            return _error(404 if address else 400, f"{asked}; there are {_some(self._control.slots)}")
        pools = tuple(
            pool.model_copy(
                update={
                    "replicas": tuple(
                        r.model_copy(update={"state": state}) if r.address == address else r
                        for r in pool.replicas
                    )
                }
            )
            for pool in table.pools
        )
        return await self._apply(
            table.model_copy(update={"pools": pools, "generation": table.generation + 1})
        )

    async def lengths(self, _: web.Request) -> web.Response:
        """Length sketches by class: counts by bin with the borders of the bins, and the sum."""
        found = sketches(self._control.board, class_names(self._control.table))
        said = {
            name: {kind: {"counts": list(s.counts), "total": s.total} for kind, s in by_kind.items()}
            for name, by_kind in found.items()
        }
        borders = [bin_upper(position) for position in range(BINS - 1)]
        return web.json_response({"borders": borders, "classes": said})

    async def canaries(self, _: web.Request) -> web.Response:
        """What the last canary over each pair said, and whether KV may go over it."""
        said = [
            {"prefill": p, "decode": d, "result": standing.last.said, "apart": standing.apart}
            for (p, d), standing in self._control.canaries.standings.items()
        ]
        return web.json_response({"pairs": said})
