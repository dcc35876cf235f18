"""The decode side of a transfer: fetches KV from prefill in model time, keeps its lease alive while it waits.

What arrives is what prefill's blocks hold when they are read, right or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from disaggc.simengine.blocks import Content, context_of
from disaggc.simengine.bootstrap import query
from disaggc.simengine.metrics import Counters
from disaggc.simengine.options import Options
from disaggc.simengine.sequence import Sequence
from disaggc.simengine.supply import ANY_ADDRESS, compatibility
from disaggc.simengine.wire import Peer, Said, TransferError

_HANDSHAKE_S = 5.0
_BEATS = 6
_WAIT_S = {"nixl-push": 480.0, "mooncake": 480.0, "moriio": 120.0}
Params = Mapping[str, Any]


def usable(params: Params, dialect: str) -> bool:
    """Whether the parameters name what is needed to fetch; if not, vLLM computes the prompt itself without a word."""
    names: tuple[str, ...]
    match dialect:
        case "nixl":
            names = ("remote_block_ids", "remote_engine_id", "remote_host", "remote_port")
        case "nixl-push":
            names = ("remote_engine_id", "remote_host", "remote_port")
        case "mooncake":
            names = ("remote_bootstrap_addr", "transfer_id")
        case "moriio-read":
            names = ("remote_block_ids", "remote_host", "remote_handshake_port")
        case _:
            names = ("remote_host", "remote_handshake_port", "transfer_id")
    return all(params.get(name) is not None for name in names)


def regrouped(contents: list[Content], theirs: int, ours: int) -> list[Content]:
    """Blocks of the other side's size as blocks of ours; TransferError when they do not divide."""
    if ours == theirs:
        return contents
    if ours % theirs:
        raise TransferError(f"block size {ours} is no multiple of {theirs}")
    ratio = ours // theirs
    found = []
    for at in range(0, len(contents), ratio):
        group = contents[at : at + ratio]
        links = pairwise(group)
        whole = all(a.digest == b.before for a, b in links)
        found.append(Content(group[0].before, group[-1].digest if whole else context_of(group)))
    return found


class Demand:
    """All transfers to one engine. arrived: gets the contents, or None when they will not come."""

    def __init__(
        self, options: Options, counters: Counters, arrived: Callable[[Sequence, list[Content] | None], None]
    ) -> None:
        self._options, self._counters, self._arrived = options, counters, arrived
        connector = options.connector
        assert connector is not None  # noqa: S101 - built only with one
        self._dialect = connector.dialect
        self._lease_s = connector.seconds("kv_lease_duration", 30.0) / options.scale
        self._peers: dict[tuple[str, int], Peer] = {}
        self._tasks: dict[Sequence, asyncio.Task[None]] = {}
        self._held: dict[Sequence, Params] = {}
        self._told: set[asyncio.Task[None]] = set()
        self._link_free = 0.0
        self.in_progress = 0

    def expect(self, sequence: Sequence) -> None:
        """The sequence is here: keep its KV alive on the other side until it is fetched."""
        self._held[sequence] = sequence.wish.params

    def fetch(self, sequence: Sequence) -> None:
        """Start the transfer."""
        self._held[sequence] = sequence.wish.params
        task = asyncio.get_running_loop().create_task(self._run(sequence))
        self._tasks[sequence] = task
        task.add_done_callback(lambda _: self._tasks.pop(sequence, None))

    def cancel(self, sequence: Sequence) -> None:
        """The sequence is gone: tell the other side that nobody reads."""
        task = self._tasks.pop(sequence, None)
        if task is not None:
            task.cancel()
        if self._held.pop(sequence, None) is not None:
            self.reject(sequence.wish.params)

    def reject(self, params: Params) -> None:
        """A request that will not be served: its KV may go."""
        if (
            params.get("do_remote_prefill") is True
            and usable(params, self._dialect)
            and "nixl" in self._dialect
        ):
            task = asyncio.get_running_loop().create_task(self._tell_done(params))
            self._told.add(task)
            task.add_done_callback(self._told.discard)

    async def beat(self) -> None:
        """Renew the leases of everything that still waits, for as long as the engine lives."""
        while True:
            await asyncio.sleep(self._lease_s / _BEATS)
            by_peer: dict[tuple[str, int], list[str]] = {}
            for params in self._held.values():
                if "nixl" in self._dialect and (name := params.get("remote_request_id")):
                    by_peer.setdefault(self._place(params), []).append(str(name))
            for place, names in by_peer.items():
                await self._peer(place).tell({"op": "beat", "requests": names})

    async def close(self) -> None:
        """End every connection; what is being said is said first."""
        if self._told:
            await asyncio.wait(self._told, timeout=1.0)
        for peer in self._peers.values():
            peer.close()

    # --- one transfer ---

    async def _run(self, sequence: Sequence) -> None:
        loop, params = asyncio.get_running_loop(), sequence.wish.params
        try:
            peer = await self._met(params)
            met = await peer.meet()
            said = await self._ask(peer, params, sequence)
            contents = self._mine(said, sequence)
            self.in_progress += 1
            try:
                seconds = await self._move(sequence.prompt - sequence.cached)
                if self._dialect in ("nixl", "moriio-read"):
                    # What is read is what is there when the transfer ends, not when it was asked for.
                    contents = self._mine(await self._ask(peer, params, sequence), sequence)
                    await peer.tell({"op": "done", "request": params.get("remote_request_id")})
                else:
                    await self._written(peer, met)
            finally:
                self.in_progress -= 1
            self._counters.moved(seconds, self._bytes(sequence), len(contents))
        except TransferError:
            self._counters.transfer("failed_transfers")
            contents = None
        finally:
            if asyncio.current_task() is self._tasks.get(sequence):
                self._held.pop(sequence, None)
        loop.call_soon(self._arrived, sequence, contents)

    async def _written(self, peer: Peer, met: Said) -> None:
        """Prefill writes until the transfer ends; TransferError when the process that began it does not live then."""
        still = await peer.ask({"op": "meta"}, self._patience(_HANDSHAKE_S))
        if still.get("process") != met.get("process"):
            raise TransferError("prefill was started anew during the transfer")

    async def _met(self, params: Params) -> Peer:
        peer = self._peer(await self._found(params))
        met = await peer.meet()
        checked = self._dialect.startswith("nixl") and self._enforced
        if checked and met.get("compatibility") != compatibility(self._options):
            raise TransferError("compatibility hash mismatch")
        wanted = params.get("remote_engine_id")
        if wanted is not None and self._dialect != "moriio" and met.get("engine_id") != wanted:
            raise TransferError("engine id mismatch")
        return peer

    @property
    def _enforced(self) -> bool:
        connector = self._options.connector
        return connector is None or connector.extra.get("enforce_handshake_compat", True) is not False

    async def _ask(self, peer: Peer, params: Params, sequence: Sequence) -> Said:
        if self._dialect in ("nixl", "moriio-read"):
            groups = params["remote_block_ids"]
            blocks = groups[0] if groups and isinstance(groups[0], list) else groups
            said = {"op": "read", "engine_id": params.get("remote_engine_id"), "blocks": blocks}
            return await peer.ask(said, self._patience(_HANDSHAKE_S))
        said = {"op": "wait", "engine_id": params.get("remote_engine_id"), "key": sequence.key}
        return await peer.ask(said, self._patience(_WAIT_S[self._dialect]))

    def _mine(self, said: Said, sequence: Sequence) -> list[Content]:
        """The contents of the blocks that are not cached here, from the end of what the other side has."""
        raw = bytes.fromhex(said["contents"])
        theirs = [Content(raw[at : at + 8], raw[at + 8 : at + 16]) for at in range(0, len(raw), 16)]
        size, ours = int(said["block_size"]), self._options.block_size
        wanted = -(-sequence.prompt // size) - sequence.cached // size
        if len(theirs) < wanted:
            raise TransferError(f"{len(theirs)} remote blocks, {wanted} wanted")
        return regrouped(theirs[len(theirs) - wanted :], size, ours)

    async def _move(self, tokens: int) -> float:
        """Let the time pass that the bytes take; one transfer after the other on the link. Seconds it took."""
        loop, timing, scale = asyncio.get_running_loop(), self._options.timing, self._options.scale
        now = loop.time()
        self._link_free = max(self._link_free, now) + timing.transfer_s(tokens) / scale
        seconds = self._link_free - now + timing.kv.setup_s / scale
        await asyncio.sleep(seconds)
        return seconds

    def _bytes(self, sequence: Sequence) -> float:
        return (sequence.prompt - sequence.cached) * self._options.timing.kv.bytes_per_token

    # --- where the other side is ---

    def _place(self, params: Params) -> tuple[str, int]:
        port = (
            params.get("remote_handshake_port")
            if self._dialect.startswith("moriio")
            else params.get("remote_port")
        )
        host = str(params.get("remote_host"))
        try:
            return ANY_ADDRESS.get(host, host), int(port or 0)
        except (TypeError, ValueError):
            raise TransferError(f"no port: {port}") from None

    async def _found(self, params: Params) -> tuple[str, int]:
        if self._dialect != "mooncake":
            return self._place(params)
        address = urlsplit(str(params["remote_bootstrap_addr"]))
        said = await query(address.hostname or "", address.port or 8998, self._patience(_HANDSHAKE_S))
        for entry in said.values():
            if params.get("remote_engine_id") in (None, entry.get("engine_id")):
                worker = urlsplit(str(entry["worker_addr"]))
                return worker.hostname or "", worker.port or 0
        raise TransferError("the bootstrap server does not know the engine")

    def _peer(self, place: tuple[str, int]) -> Peer:
        if place not in self._peers:
            self._peers[place] = Peer(*place, self._patience(_HANDSHAKE_S))
        return self._peers[place]

    async def _tell_done(self, params: Params) -> None:
        with suppress(TransferError):
            await self._peer(self._place(params)).tell(
                {"op": "done", "request": params.get("remote_request_id")}
            )

    def _patience(self, seconds: float) -> float:
        return max(seconds / self._options.scale, 0.5)
