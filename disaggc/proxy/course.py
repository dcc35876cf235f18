"""The common course of a generation request, driven by its connections' own callbacks: prefill, decode, stream.

No task and no future: each answer starts the next leg before its callback returns. Whatever leaves the common course
(no idle connection, a failure, a dialect with legs at once) goes on in the request's task, from where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from disaggc.proxy.board import PerClass, PerReplica, Timing, Total
from disaggc.proxy.delivery import deliver_whole, end_stream, leave_stream, open_stream, streams
from disaggc.proxy.dialects import REMOTE_DECODE_TEXT
from disaggc.proxy.failures import LegError, Stage
from disaggc.proxy.legs import handed_over, judge_status, judge_stream, judge_whole
from disaggc.proxy.pair_choice import choose_pair
from disaggc.proxy.pairing import hang_up
from disaggc.proxy.requests import engine_head
from disaggc.routing.table import Dialect

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.generation import Generation
    from disaggc.proxy.members import Pieces
    from disaggc.proxy.relay import StreamRelay
    from disaggc.proxy.upstream import Connection


class Course:
    """Who waits for the engines of one request; `Waiter` of its legs and `Done` of its stream."""

    __slots__ = ("_begun", "_connection", "_handed", "_replica", "_stage", "_x")

    def __init__(self, exchange: Generation) -> None:
        self._x = exchange
        self._stage: Stage | None = None
        self._begun = 0.0
        self._handed = 0.0
        self._replica: Replica
        self._connection: Connection

    def start(self) -> None:
        """The first leg, or the request's task where that is not the common course."""
        x = self._x
        if x.remote:
            pair = choose_pair(x.service.fleet, x.holding, tried=x.tried, prefix=x.prefix)
            if pair is not None and x.service.table.dialect is Dialect.NIXL:
                x.move_to(pair.decode)
                if self._connect(pair.prefill):
                    self._prefill(pair.prefill)
                    return
            x.paired = pair
        elif self._connect(x.holding):
            x.service.tally.by_class(x.position, PerClass.LOCAL)
            self._decode(b"")
            return
        x.go_on()

    # --- what the connections call ---

    def done(self) -> bool:
        """Whether nothing is waited for."""
        return self._stage is None

    def exception(self) -> None:
        """Failures are taken up as they come."""

    def set_result(self, result: Answer | None, /) -> None:
        """An answer, or the end of the stream."""
        stage, self._stage = self._stage, None
        self._x.waits.clear()
        self._x.guarded(lambda: self._next(stage, result))

    def set_exception(self, exception: LegError, /) -> None:
        """A leg failed, or the stream broke."""
        stage, self._stage = self._stage, None
        self._x.waits.clear()
        self._x.guarded(lambda: self._failed(stage, exception))

    def drop(self) -> None:
        """The client left."""
        stage, self._stage = self._stage, None
        self._x.waits.clear()
        if stage is Stage.STREAM:
            if self._x.relay is not None:
                leave_stream(self._x, self._x.relay)
        elif stage is not None:
            self._replica.circuit.withdrawn()
            self._leave(stage)

    # --- steps ---

    def _connect(self, replica: Replica) -> bool:
        connection = replica.pool.idle()
        if connection is None:
            return False
        self._connection, self._replica = connection, replica
        return True

    def _prefill(self, prefill: Replica) -> None:
        x = self._x
        x.service.tally.by_class(x.position, PerClass.REMOTE)
        x.entry.prefill = prefill.address
        prefill.take(x.prompt_tokens)
        prefill.count(PerReplica.PREFILLS)
        body = x.ask.prefill_body(REMOTE_DECODE_TEXT, keeps_only_capped=False)
        self._ask(body, Stage.PREFILL, x.service.table.timeouts.prefill_s, stream=False)

    def _decode(self, params: bytes) -> None:
        x, replica = self._x, self._replica
        x.entry.decode = replica.address
        replica.count(PerReplica.DECODES)
        limits, stream = x.service.table.timeouts, x.ask.stream
        self._ask(
            x.ask.decode_body(params), Stage.FIRST_BYTE, limits.first_byte_s if stream else limits.total_s,
            stream=stream,
        )  # fmt: skip

    def _ask(self, body: Pieces, stage: Stage, seconds: float, *, stream: bool) -> None:
        x, replica, connection = self._x, self._replica, self._connection
        replica.circuit.sent()
        head = engine_head(
            b"POST", x.request.path, replica.authority, lines=x.request.lines, request=x.upstream_id,
            size=sum(map(len, body)),
        )  # fmt: skip
        self._wait(stage, seconds)
        x.connections.append(connection)
        connection.ask_for(self, [head, *body], owner=x.connections, stream=stream)

    def _wait(self, stage: Stage, seconds: float) -> None:
        x = self._x
        now = self._begun = x.clock()
        self._stage = stage
        deadline, last = now + seconds, x.started + x.service.table.timeouts.total_s
        x.waits.append((self, stage, min(last, deadline)))

    def _next(self, stage: Stage | None, answer: Answer | None) -> None:
        if answer is None:
            if self._x.relay is not None:
                self._ended(self._x.relay, None)
            return
        try:
            self._judge(answer)
        except LegError as error:
            self._failed(stage, error)
            return
        self._replica.circuit.succeeded()
        if stage is Stage.PREFILL:
            self._prefilled(answer)
        else:
            self._decoded(answer)

    def _judge(self, answer: Answer) -> None:
        judge_status(answer)
        if answer.head.status == 200:
            (judge_stream if streams(self._x, answer) else judge_whole)(answer)

    def _prefilled(self, answer: Answer) -> None:
        x, prefill = self._x, self._replica
        now = self._handed = x.clock()
        prefill.release(x.prompt_tokens)
        took = now - self._begun
        x.entry.prefill_ms = took * 1e3
        x.service.tally.timing(x.position, Timing.PREFILL, took)
        if answer.head.status != 200:
            self._deliver(answer)
            return
        try:
            x.params, tokens = handed_over(answer, x.service.table.dialect)
        except LegError as error:
            prefill.failed(now)
            self._go_on_after(Stage.PREFILL, error)
            return
        if tokens:
            x.note_prompt_tokens(tokens)
        if self._connect(x.holding):
            self._decode(x.params)
        else:
            x.handed = now
            x.go_on()

    def _decoded(self, answer: Answer) -> None:
        x = self._x
        now = x.clock()
        x.service.tally.timing(x.position, Timing.DECODE_FIRST, now - self._begun)
        if self._handed:
            x.service.tally.timing(x.position, Timing.HANDOFF, now - self._handed)
            if answer.head.status not in (400, 422):
                x.params = b""
        self._deliver(answer)

    def _deliver(self, answer: Answer) -> None:
        x = self._x
        if x.keys:
            x.service.prefixes.note(x.holding.address, x.keys)
        if streams(x, answer):
            self._wait(Stage.STREAM, x.service.table.timeouts.total_s)
            open_stream(x, answer, self)
            return
        deliver_whole(x, answer)
        x.conclude(keep_alive=True)

    def _failed(self, stage: Stage | None, error: LegError) -> None:
        x = self._x
        if stage is Stage.STREAM or stage is None:
            if self._x.relay is not None:
                self._ended(self._x.relay, error)
            return
        self._leave(stage)
        if not error.fresh and (stage is Stage.PREFILL or not self._handed):
            # The engine had closed the connection meanwhile: the task asks again, and it is no failure.
            x.service.tally.cells[Total.STALE_RETRIES] += 1
            self._replica.circuit.withdrawn()
            x.go_on()
            return
        if error.blame and error.fresh:
            self._replica.failed(x.clock())
        self._go_on_after(stage, error)

    def _leave(self, stage: Stage) -> None:
        """Nobody waits for this leg any more; a prefill may have finished all the same."""
        x = self._x
        hang_up(x, self._connection, self._replica, salvage=stage is Stage.PREFILL)
        if stage is Stage.PREFILL:
            self._replica.release(x.prompt_tokens)

    def _go_on_after(self, stage: Stage, error: LegError) -> None:
        error.prefill = stage is Stage.PREFILL
        self._x.broke = error
        self._x.go_on()

    def _ended(self, relay: StreamRelay, error: LegError | None) -> None:
        leave_stream(self._x, relay)
        end_stream(self._x, relay, error)
        self._x.conclude(keep_alive=True)
