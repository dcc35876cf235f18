"""One request to one engine: on an idle connection or a new one, until its answer has begun or nobody waits any more.

Driven by its connection's callbacks: no task, no future, no timer. Its owner calls `expire` when it is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from disaggc.proxy.board import Total
from disaggc.proxy.failures import LegError
from disaggc.proxy.verdicts import Handed, fault_of, handed_over, has_begun

if TYPE_CHECKING:
    from disaggc.proxy.answers import Answer
    from disaggc.proxy.bounds import Bounds
    from disaggc.proxy.fleet import Replica
    from disaggc.proxy.upstream import Connection, Message


class Caller(Protocol):
    """Who made the call; told exactly once, unless it dropped the call."""

    last: float
    """When its own time is over, by the monotonic clock."""

    def took(self, call: Call, answer: Answer) -> None:
        """The answer; one that has not ended must be relayed or its connection closed."""

    def missed(self, call: Call, error: LegError) -> None:
        """There is no good answer."""


class Prefiller(Caller, Protocol):
    """Who asks for a prefill, and takes over what that may have finished although nobody waits for it any more."""

    prompt_tokens: float

    def salvage(self, connection: Connection, prefill: Replica) -> None:
        """Hang up, and release what an answer on its way says."""


@dataclass(frozen=True)
class Terms:
    """How a call is made; the same for many."""

    seconds: float
    """How long an answer is waited for."""
    connect_s: float
    stream: bool = False
    """Whether the caller is told at the first events of a stream."""
    again: bool = False
    """Whether, should the engine have closed the connection meanwhile, a new one is tried."""


class Call:
    """One call; `open` while somebody waits for it."""

    __slots__ = (
        "_again", "_by", "_caller", "_connection", "_message", "_terms", "deadline", "open", "replica",
    )  # fmt: skip

    def __init__(self, caller: Caller, replica: Replica, terms: Terms) -> None:
        self._caller = caller
        self.replica = replica
        self._message: Message = b""
        self._terms = terms
        self.deadline = caller.last
        """By the monotonic clock; at most the caller's."""
        self.open = True
        self._again = terms.again
        self._connection: Connection | None = None

    def start(self, message: Message, now: float) -> None:
        """Ask on an idle connection, or a new one."""
        self._message = message
        pool = self.replica.pool
        connection = pool.take(now)
        if connection is None:
            self._connect(now)
        else:
            self._ask(connection, now)

    def _connect(self, now: float) -> None:
        """On a new connection, by a time: KV that is asked for after its lease is another prompt's."""
        self._by = now + self._terms.connect_s
        self.replica.pool.open(self, self._terms.connect_s)

    def _ask(self, connection: Connection, now: float) -> None:
        self._connection = connection
        terms = self._terms
        deadline = now + terms.seconds
        self.deadline = min(self.deadline, deadline)
        connection.ask(self, self._message, begun=has_begun if terms.stream else None)

    def opened(self, connection: Connection) -> None:
        """A new connection; one that nobody waits for any more serves the next."""
        now = monotonic()
        if self.open and now <= self._by:
            self._ask(connection, now)
            return
        # Late, although its timer did not say so: this process stood still.
        self.replica.pool.put_back(connection)
        self.failed(LegError("connect", status=504, blame=False, sent=False))

    def answered(self, answer: Answer) -> None:
        """The engine's answer, or its start: whoever is told owns the connection of the latter."""
        self._end()
        self._caller.took(self, answer)

    def failed(self, error: LegError) -> None:
        """No connection, or it broke."""
        if not self.open:
            return
        if self._again and not error.fresh:
            self._again = False
            self._connection = None
            self.deadline = self._caller.last
            self.replica.count_total(Total.STALE_RETRIES)
            self._connect(monotonic())
            return
        self._end()
        self._caller.missed(self, error)

    def expire(self) -> None:
        """Its time is over."""
        self._leave()
        self._end()
        self._caller.missed(self, LegError("timeout", status=504))

    def drop(self) -> None:
        """Nobody waits any more."""
        if self.open:
            self._withdraw()
            self._leave()
            self._end()

    def _withdraw(self) -> None:
        """It ends without saying anything about the replica."""

    def _leave(self) -> None:
        """The engine sees that nobody waits."""
        if self._connection is not None:
            self._connection.close()

    def _end(self) -> None:
        self.open = False
        self._connection = None
        self._message = b""


class Leg(Call):
    """A call whose outcome counts for the replica: its answer is judged, its circuit is told."""

    __slots__ = ()

    def answered(self, answer: Answer) -> None:
        """Judge it."""
        fault = self._judge(answer)
        if fault is None:
            self.replica.circuit.succeeded()
            self._end()
            self._caller.took(self, answer)
            return
        if not answer.ended:
            answer.connection.close()
        self._blame(fault)
        self._end()
        self._caller.missed(self, fault)

    def failed(self, error: LegError) -> None:
        """A failure counts, a connection that the engine had closed in time does not."""
        if self.open and not (self._again and not error.fresh):
            self._blame(error)
        super().failed(error)

    def expire(self) -> None:
        """Late answers count as failures."""
        self.replica.failed(monotonic())
        super().expire()

    def _withdraw(self) -> None:
        self.replica.circuit.withdrawn()

    def _judge(self, answer: Answer) -> LegError | None:
        return fault_of(answer)

    def _blame(self, error: LegError) -> None:
        if error.blame and error.fresh:
            self.replica.failed(monotonic())
        else:
            self.replica.circuit.withdrawn()


class PrefillLeg(Leg):
    """A prefill: occupies its replica by the prompt's tokens, and may have finished although nobody waits any more."""

    __slots__ = ("_protocol", "_tokens", "_waiting", "handed")

    def __init__(self, caller: Prefiller, replica: Replica, bounds: Bounds) -> None:
        Leg.__init__(self, caller, replica, bounds.prefill)  # super() costs 0.4 us, here and in `_end`
        self._waiting = caller
        self._tokens = caller.prompt_tokens
        self._protocol = bounds.protocol
        self.handed: Handed | None = None
        """What it hands over, once it has answered; only where decode gets its parameters from the answer."""
        replica.take(self._tokens)

    def _judge(self, answer: Answer) -> LegError | None:
        if not self._protocol.answers or answer.head.status != 200 or answer.head.event_stream:
            return fault_of(answer)
        handed = handed_over(answer.body, self._protocol.dialect)
        if isinstance(handed, LegError):
            return handed
        self.handed = handed
        return None

    def _leave(self) -> None:
        if self._connection is not None and self._protocol.answers:
            self._waiting.salvage(self._connection, self.replica)
        else:
            super()._leave()

    def _end(self) -> None:
        Leg._end(self)  # noqa: SLF001 - its own
        self.replica.release(self._tokens)
