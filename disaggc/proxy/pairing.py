"""The legs of one generation request: decode alone, prefill then decode, or both at once, as the dialect wants.

Raises LegError, marked as prefill's or decode's, and decides nothing about retries.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from disaggc.proxy.board import PerClass, PerReplica, Timing, Total
from disaggc.proxy.dialects import Handover, Protocol, handover, params_text, protocol_of
from disaggc.proxy.failures import LegError, Stage
from disaggc.proxy.legs import Message, handed_over, judge_status, judge_stream, judge_whole, send
from disaggc.proxy.members import Pieces
from disaggc.proxy.requests import engine_head, forwarded
from disaggc.routing.table import Dialect

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.generation import Generation
    from disaggc.proxy.upstream import Connection


_ALONE = protocol_of(Dialect.NIXL)
"""What a request with one leg is sent by: nothing of the protocol is used then."""


class Legs:
    """The legs of one try."""

    __slots__ = ("_lines", "_protocol", "_table", "_x")

    def __init__(self, exchange: Generation) -> None:
        self._x = exchange
        self._table = exchange.service.table
        self._protocol = protocol_of(self._table.dialect) if exchange.remote else _ALONE
        self._lines = forwarded(exchange.request.headers)

    async def alone(self, decode: Replica) -> Answer:
        """One leg: the engine prefills too."""
        self._x.service.tally.by_class(self._x.position, PerClass.LOCAL)
        return await self._decode(decode, b"", self._x.upstream_id)

    async def pair(self, prefill: Replica, decode: Replica) -> Answer:
        """Two legs; gives decode's answer, or prefill's when that says the request itself is at fault."""
        x = self._x
        protocol = self._protocol
        request = f"{x.upstream_id}.r{x.tries}" if x.tries else x.upstream_id
        hand = handover(protocol, request, prefill.entry, decode=decode.entry)
        x.service.tally.by_class(x.position, PerClass.REMOTE)
        if protocol.concurrent:
            return await self._both(hand, prefill, decode)
        answer = await self._prefill(hand, prefill, protocol)
        if answer.head.status != 200:
            return answer
        handed = x.clock()
        x.finished_prefill = None
        x.params = self._params_of(answer, prefill)
        reply = await self._decode(decode, x.params, protocol.engine_request_id(hand), handed=handed)
        x.service.tally.timing(x.position, Timing.HANDOFF, x.clock() - handed)
        if reply.head.status not in (400, 422):
            x.params = b""
        return reply

    async def _both(self, hand: Handover, prefill: Replica, decode: Replica) -> Answer:
        """Both at once: a failed prefill ends the decode leg, which would wait for KV that never comes."""
        protocol = self._protocol
        params = params_text(protocol.decode_params(hand)) if protocol.decode_params else b""
        loop = asyncio.get_running_loop()
        first = loop.create_task(self._prefill(hand, prefill, protocol))
        second = loop.create_task(self._decode(decode, params, protocol.engine_request_id(hand)))
        self._x.tasks = (first, second)
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        if not second.done() or (first.done() and second.exception() is not None):
            answer = first.result()
            if answer.head.status != 200:
                return answer
        return await second

    def _message(self, replica: Replica, body: Pieces, *, request: str, stream: bool, rank: bool) -> Message:
        lines = self._lines
        if rank and replica.entry.kv is not None:
            lines += b"x-data-parallel-rank: %d\r\n" % replica.entry.kv.dp_rank
        size = sum(map(len, body))
        head = engine_head(
            b"POST", self._x.request.path, replica.authority, lines=lines, request=request, size=size
        )
        return Message(head, body, stream)

    async def _prefill(self, hand: Handover, prefill: Replica, protocol: Protocol) -> Answer:
        x = self._x
        params = params_text(protocol.prefill_params(hand))
        body = x.ask.prefill_body(params, keeps_only_capped=protocol.keeps_only_capped)
        message = self._message(
            prefill, body, request=protocol.engine_request_id(hand), stream=False, rank=protocol.rank_headers
        )
        x.entry.prefill = prefill.address
        begun = x.clock()
        tokens = x.prompt_tokens
        prefill.take(tokens)
        prefill.count(PerReplica.PREFILLS)
        try:
            answer = await self._leg(prefill, message, Stage.PREFILL, again=not protocol.concurrent)
            if answer.head.status == 200 and not protocol.answers:
                judge_whole(answer)
        except LegError as error:
            error.prefill = True
            raise
        finally:
            prefill.release(tokens)
        took = x.clock() - begun
        x.entry.prefill_ms = took * 1e3
        x.service.tally.timing(x.position, Timing.PREFILL, took)
        return answer

    def _params_of(self, answer: Answer, prefill: Replica) -> bytes:
        try:
            params, tokens = handed_over(answer, self._table.dialect)
        except LegError as error:
            error.prefill = True
            prefill.failed(self._x.clock())
            raise
        if tokens:
            self._x.note_prompt_tokens(tokens)
        return params

    async def _decode(
        self, decode: Replica, params: bytes, request: str, *, handed: float | None = None
    ) -> Answer:
        x = self._x
        message = self._message(
            decode, x.ask.decode_body(params), request=request, stream=x.ask.stream,
            rank=bool(params) and self._protocol.rank_headers,
        )  # fmt: skip
        x.entry.decode = decode.address
        begun = x.clock()
        decode.count(PerReplica.DECODES)
        answer = await self._leg(decode, message, Stage.FIRST_BYTE, again=not params, handed=handed)
        x.service.tally.timing(x.position, Timing.DECODE_FIRST, x.clock() - begun)
        return answer

    async def _leg(
        self, replica: Replica, message: Message, stage: Stage, *, again: bool, handed: float | None = None
    ) -> Answer:
        """Ask and judge. `again`: a connection that the engine had closed meanwhile may be replaced by a new one."""
        replica.circuit.sent()
        try:
            answer = await self._ask(replica, message, stage, again=again, handed=handed)
            judge_status(answer)
            if answer.head.status == 200:
                judge = judge_stream if message.stream and answer.head.chunked else judge_whole
                judge(answer)
        except LegError as error:
            if error.blame and error.fresh:
                replica.failed(self._x.clock())
            raise
        except asyncio.CancelledError:
            replica.circuit.withdrawn()
            raise
        replica.circuit.succeeded()
        return answer

    async def _ask(
        self, replica: Replica, message: Message, stage: Stage, *, again: bool, handed: float | None
    ) -> Answer:
        x, limits = self._x, self._table.timeouts
        connect_s = limits.connect_s
        if handed is not None:
            connect_s = min(connect_s, max(0.001, handed + limits.handoff_s - x.clock()))
        seconds = limits.prefill_s if stage is Stage.PREFILL else limits.first_byte_s
        if not message.stream and stage is Stage.FIRST_BYTE:
            seconds = limits.total_s
        connection, future = await send(replica, message, x.connections, connect_s=connect_s)
        try:
            return await x.within(stage, seconds, future)
        except LegError as error:
            if error.fresh or not again:
                raise
            x.service.tally.cells[Total.STALE_RETRIES] += 1
            connection, future = await send(replica, message, x.connections, connect_s=connect_s, new=True)
            return await x.within(stage, seconds, future)
        finally:
            if not future.done() or future.cancelled() or future.exception() is not None:
                self._hang_up(connection, replica, stage)
            elif stage is Stage.PREFILL and self._protocol.answers:
                # Should the client leave now, before this task goes on, the answer is still known.
                x.finished_prefill = future.result()

    def _hang_up(self, connection: Connection, replica: Replica, stage: Stage) -> None:
        """The answer is not wanted any more; a prefill may have finished all the same."""
        x = self._x
        if stage is Stage.PREFILL and self._protocol.answers and connection.owner is x.connections:
            x.service.releases.salvage(x.service, connection, replica, headers=x.request.headers)
        else:
            connection.abandon(x.connections)
